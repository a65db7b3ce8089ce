"""Files of a commitlog on disk, and walks over them."""
