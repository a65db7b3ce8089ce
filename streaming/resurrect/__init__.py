"""`reput resurrect`: what was lost of a broker's ``config/``, made again from what is still true."""
