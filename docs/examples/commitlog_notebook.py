"""A commitlog in a notebook, cell by cell: Jupytext, VS Code and PyCharm open this file as one, or paste its cells."""

# %% The Python that runs this also runs Spark's tasks, and is where Spark looks for reput's data source.
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[*]").appName("commitlog").getOrCreate()

# %% A log as rows: one a message, read when something is asked of it. Nothing is written to the store.
messages = spark.read.format("rocketmq-commitlog").load("/data/store")
messages.printSchema()

# %% A few columns of a few messages.
messages.select("store_time", "topic", "queue_id", "queue_offset", "tags", "keys", "body_size").show(5, truncate=False)

# %% What there is by topic: messages, bytes, and from when to when.
by_topic = messages.groupBy("topic").agg(
    f.count("*").alias("messages"),
    f.sum("msg_size").alias("bytes"),
    f.min("store_time").alias("first"),
    f.max("store_time").alias("last"),
)
by_topic.orderBy(f.desc("messages")).show(100, truncate=False)

# %% The same as pandas has it, for whatever comes next in the notebook.
by_topic.toPandas()
