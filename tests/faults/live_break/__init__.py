"""`reput tail` behind a real broker under load, while everything around it breaks; see ``__main__``."""
