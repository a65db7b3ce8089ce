"""SQL92 bitmaps: the filters of a broker's consumers, evaluated for each record."""
