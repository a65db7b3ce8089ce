"""One RocketMQ release, ready to run: its class path and the Java client compiled against it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from broker.artifacts import BROKER, compile_client, resolve_class_path
from broker.class_archive import ClassArchive
from broker.java_process import JavaProcess

DEFAULT_WORK_DIR = Path(__file__).resolve().parents[2] / ".work" / "broker"

# A process of a test lives for a minute: compiling its code well would take more time than it gives. No test uses TLS,
# whose certificate takes a server two seconds.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dtls.server.mode=disabled")

LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %c - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class Release:
    """One release of RocketMQ.

    Parameters
    ----------
    version
        A release on Maven Central; 4.9.3 and 5.5.0 are known to work.
    part
        ``artifacts.STORE`` for one of which only the store is to be had, or wanted: 5.5.1 has no broker there.
    work_dir
        Where class path and classes are kept; ``.work/broker`` below the repository unless told. Safe to
        share between processes.
    is_short_lived
        Whether its JVMs spare the time to compile well; false where a broker is measured.

    Raises
    ------
    HarnessError
        The release could not be resolved, or the client does not compile against it.
    """

    def __init__(
        self,
        version: str = "4.9.3",
        work_dir: Path | None = None,
        *,
        is_short_lived: bool = True,
        part: str = BROKER,
    ) -> None:
        self.version, self._part = version, part
        self.is_short_lived = is_short_lived
        self.work_dir = (work_dir or DEFAULT_WORK_DIR).resolve()
        jars = resolve_class_path(version, self.work_dir, part)
        client = compile_client(version, jars, self.work_dir, part)
        self.class_path = f"{client}:{jars}"

    def launch(self, home: Path, jvm: Sequence[str], *main_class: str) -> JavaProcess:
        """Start a main class of this release with all its logs below ``home``."""
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        logback = LOGBACK.format(file=home / "rocketmq.log")
        for name in ("logback_broker.xml", "logback_namesrv.xml", "logback_tools.xml", "logback.xml"):
            (conf / name).write_text(logback, encoding="utf-8")
        options = [
            *(SHORT_LIVED if self.is_short_lived else ()),
            *jvm,
            "-cp",
            self.class_path,
            f"-Duser.home={home}",
            # 4.9.3 looks for conf/logback_broker.xml itself, 5.x needs this property.
            f"-Drmq.logback.configurationFile={conf / 'logback.xml'}",
            f"-Dlogback.configurationFile={conf / 'logback.xml'}",
        ]
        archive = None
        if self.is_short_lived:
            name = f"{self._part}-{self.version}-{main_class[0].rpartition('.')[2]}"
            archive = ClassArchive(self.work_dir, name, self.class_path)
        return JavaProcess(options, main_class, home, {"ROCKETMQ_HOME": str(home)}, archive)
