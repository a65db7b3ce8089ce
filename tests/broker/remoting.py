"""As much of RocketMQ's remoting protocol as it takes to ask for brokers, and to change the settings of one."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from broker.java_process import LOOPBACK

UPDATE_BROKER_CONFIG = 25  # RequestCode
GET_MAX_OFFSET = 30
GET_BROKER_CLUSTER_INFO = 106
TIMEOUT_S = 5
FRAME_BYTES_MAX = 16 << 20


def knows_broker(name_server_port: int, broker_address: str) -> bool:
    """Say whether the name server lists the broker; False also while the name server does not answer."""
    try:
        answer = _ask(name_server_port, GET_BROKER_CLUSTER_INFO)
    except OSError:
        return False
    # fastjson writes numbers as names of a map, which is not JSON: look for the address as text.
    return f'"{broker_address}"'.encode() in answer


def update_broker_config(port: int, name: str, value: object) -> None:
    """Change one setting of a running broker, as ``mqadmin updateBrokerConfig`` does.

    Raises
    ------
    ConnectionError
        The broker refused it.
    """
    header = _header(_ask(port, UPDATE_BROKER_CONFIG, f"{name}={value}\n".encode()))
    if header["code"] != 0:
        raise ConnectionError(f"the broker refused {name}={value}: {header.get('remark')}")


def max_offset(port: int, topic: str, queue_id: int) -> int:
    """The end of a queue, exclusive, as the broker tells its consumers.

    Raises
    ------
    ConnectionError
        The broker refused to say.
    """
    header = _header(_ask(port, GET_MAX_OFFSET, topic=topic, queueId=str(queue_id)))
    if header["code"] != 0:
        raise ConnectionError(f"the broker refused the end of {topic}-{queue_id}: {header.get('remark')}")
    return int(header["extFields"]["offset"])


def _header(answer: bytes) -> Any:
    size = int.from_bytes(answer[1:4], "big")
    return json.loads(answer[4 : 4 + size])


def _ask(port: int, code: int, body: bytes = b"", **fields_of_request: str) -> bytes:
    """Send one request; return the answer without its length: the header's length, the header, the body.

    A frame is its length (4 bytes, big-endian, itself not counted), the header's length (the highest byte
    is the header's encoding, 0 for JSON), the header, the body.
    """
    fields = {"code": code, "language": "JAVA", "version": 0, "opaque": 1, "flag": 0, "extFields": fields_of_request}
    header = json.dumps({**fields, "serializeTypeCurrentRPC": "JSON"}).encode()
    with socket.create_connection((LOOPBACK, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        (length,) = struct.unpack(">i", _read(connection, 4))
        if not 0 < length <= FRAME_BYTES_MAX:
            raise ConnectionError(f"the server answered a frame of {length} bytes")
        return _read(connection, length)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError(f"the connection ended {size - len(data)} bytes early")
        data += part
    return data
