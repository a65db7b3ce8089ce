#!/usr/bin/env bash
# deltalake 1.6.6: `DeltaTable.history()` keeps Python's interpreter lock while it reads the table's log, so every other
# thread of the process stands still until the object store has answered; `DeltaTable()` lets them run. A service that
# shows a table's history answers nobody else meanwhile, and a test whose S3 server runs in a thread of its own process
# waits for itself. Here S3 is moto 5.2.5 in another process, with a fifth of a second for each answer, and a thread
# counts every 10 ms.
# Seen on 2026-11-27. Needs Python 3.10 or later.
source "$(dirname "$0")/expect.sh"
python_with deltalake==1.6.6 pyarrow==26.0.1 'moto[server]==5.2.5' boto3==1.44.8

cat >server.py <<'PY'
import sys
import time

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

application = DomainDispatcherApplication(create_backend_app)


def slowly(environ, start):
    time.sleep(0.2)
    return application(environ, start)


server = make_server("127.0.0.1", 0, slowly, threaded=True)
with open(sys.argv[1], "w") as port:
    port.write(str(server.server_port))
server.serve_forever()
PY
"$python" server.py port 2>server.log &
trap 'kill %1; rm -rf "$work"' EXIT
until [ -s port ]; do sleep 0.1; done

cat >count.py <<'PY'
import sys
import threading
import time

import boto3
import deltalake
import pyarrow as pa

url = f"http://127.0.0.1:{sys.argv[1]}"
keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(Bucket="bucket")
options = {"aws_endpoint_url": url, "aws_allow_http": "true", "aws_region": "us-east-1", **keys}
for number in range(3):
    deltalake.write_deltalake("s3://bucket/t", pa.table({"a": [number]}), mode="append", storage_options=options)
ticks = 0


def count():
    global ticks
    while True:
        time.sleep(0.01)
        ticks += 1


threading.Thread(target=count, daemon=True).start()


def during(work):
    before, began = ticks, time.monotonic()
    result = work()
    return result, ticks - before, time.monotonic() - began


table, opened, seconds_opened = during(lambda: deltalake.DeltaTable("s3://bucket/t", storage_options=options))
_, listed, seconds_listed = during(lambda: table.history())
for what, counted, seconds in (("DeltaTable()", opened, seconds_opened), ("history()", listed, seconds_listed)):
    print(f"{what}: took more than 0.15 s: {seconds > 0.15}; other threads ran meanwhile: {counted > 5}")
PY
"$python" count.py "$(cat port)" | seen 'DeltaTable(): took more than 0.15 s: True; other threads ran meanwhile: True
history(): took more than 0.15 s: True; other threads ran meanwhile: False'
