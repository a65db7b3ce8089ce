"""As much of RocketMQ's remoting protocol as it takes to ask for brokers, and to change the settings of one."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from typing import Any

from broker.java_process import LOOPBACK

SEND_MESSAGE = 10  # RequestCode
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
UPDATE_BROKER_CONFIG = 25
GET_MAX_OFFSET = 30
GET_BROKER_CLUSTER_INFO = 106
POP_MESSAGE, ACK_MESSAGE = 200_050, 200_051
UPDATE_AND_CREATE_SUBSCRIPTION_GROUP = 200
DELETE_TOPIC_IN_BROKER = 215
INVOKE_BROKER_TO_RESET_OFFSET = 222
POLLING_TIMEOUT = 210  # ResponseCode
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


def is_master(name_server_port: int, broker_address: str) -> bool:
    """Say whether the name server lists the broker as a master, which has the broker id 0."""
    answer = _ask(name_server_port, GET_BROKER_CLUSTER_INFO)
    return re.search(rb'[{,]"?0"?:"' + re.escape(broker_address.encode()) + b'"', answer) is not None


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


def send_message(port: int, topic: str, queue_id: int, body: bytes, **properties: object) -> None:
    """Send a message to a topic, which the broker makes if it may; raises ConnectionError if it refuses."""
    fields = {
        "producerGroup": "reput",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": "".join(f"{name}\1{value}\2" for name, value in properties.items()),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    _done(_ask(port, SEND_MESSAGE, body, **fields), "a message")


def delete_topic(port: int, topic: str) -> None:
    """Delete a topic, as ``mqadmin deleteTopic`` does; raises ConnectionError if the broker refuses."""
    _done(_ask(port, DELETE_TOPIC_IN_BROKER, topic=topic), "a deletion")


def make_group(port: int, group: str) -> None:
    """Make a consumer group, without which a 5.x broker takes no offset; raises ConnectionError if it refuses."""
    body = json.dumps({"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16})
    _done(_ask(port, UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, body.encode()), "a group")


def pop(port: int, group: str, topic: str, queue_id: int, invisible_ms: int) -> tuple[list[bytes], str]:
    """Have a 5.x broker hand out messages of a queue, or of the group's retry topic.

    Returns the messages, as they are stored, and what `acknowledge` needs, which is good for those of the queue.
    Raises ConnectionError if the broker refuses.
    """
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "invisibleTime": str(invisible_ms)}
    more = {"maxMsgNums": "8", "pollTime": "0", "initMode": "0", "expType": "TAG", "exp": "*", "order": "false"}
    answer = _ask(port, POP_MESSAGE, **fields, **more, bornTime=str(time.time_ns() // 1_000_000))
    header = _header(answer)
    if header["code"] == POLLING_TIMEOUT:
        return [], ""
    told = _done(answer, "to pop")["extFields"]
    start = told["startOffsetInfo"].split(";")[0].split(" ")[2]
    body, messages = answer[4 + int.from_bytes(answer[1:4], "big") :], []
    while body:
        size = int.from_bytes(body[:4], "big")
        messages.append(body[:size])
        body = body[size:]
    return messages, f"{start} {told['popTime']} {told['invisibleTime']} {told['reviveQid']} 0 broker-a {queue_id}"


def acknowledge(port: int, group: str, topic: str, queue_id: int, popped: str, offset: int) -> None:
    """Acknowledge a message that was `popped`; raises ConnectionError if the broker refuses."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "offset": str(offset)}
    _done(_ask(port, ACK_MESSAGE, **fields, extraInfo=f"{popped} {offset}"), "an acknowledgement")


def update_consumer_offset(port: int, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Report a group's offset, as its consumers do; raises ConnectionError if the broker refuses."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    _done(_ask(port, UPDATE_CONSUMER_OFFSET, **fields), "an offset")


def reset_consumer_offset(port: int, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Have a 5.x broker reset a group by itself; raises ConnectionError if it refuses."""
    fields = {"group": group, "topic": topic, "queueId": str(queue_id), "offset": str(offset)}
    _done(_ask(port, INVOKE_BROKER_TO_RESET_OFFSET, **fields, timestamp="0", isForce="true"), "a reset")


def consumer_offset(port: int, group: str, topic: str, queue_id: int) -> int:
    """Return a group's next offset as the broker gives it to consumers; raises ConnectionError if it refuses."""
    answer = _ask(port, QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=str(queue_id))
    return int(_done(answer, "the offset")["extFields"]["offset"])


def _done(answer: bytes, what: str) -> Any:
    header = _header(answer)
    if header["code"] != 0:
        raise ConnectionError(f"the broker refused {what}: {header.get('remark')}")
    return header


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
