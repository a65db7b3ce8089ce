"""`reput resurrect`: lost files of a broker's ``config/``, made again from what is still true."""
