"""Reading: segments on disk, the record format, the decoders, the Spark data source."""
