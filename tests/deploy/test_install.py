"""Follow docs/operating/install.md from a bare Debian 12, word for word, to a running service and an answered panel.

Each command of the page is run unchanged, under a systemd that is the first process of a container. Such a container
may lack a limit of memory for a unit. A gigabyte is fetched; `make install-check` prints the time of each step.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator

import pytest
from deploy.bare_debian import TOOLS, BareDebian, NotHereError
from support.broker_stores import unpack
from support.paths import DATA, ROOT

pytestmark = [pytest.mark.deploy, pytest.mark.slow]

PAGE = (ROOT / "docs" / "operating" / "install.md").read_text(encoding="utf-8")
STORE = "v5-plain"
MESSAGES: int = json.loads((DATA / f"{STORE}.json").read_text())["totalMessages"]
CHECKOUT = "/srv/reput"
COMMAND_SECONDS = 1200.0
SCRAPED_WITHIN_S, KEPT_WITHIN_S = 60.0, 120.0
SERVICE = "reput@broker-a"


def commands(heading: str) -> list[str]:
    """Return the commands for root in the section of that heading, up to the next one."""
    section = re.split(r"^##+ ", PAGE.split(f"\n{heading}\n", 1)[1], flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return re.findall(r"^# (.*)$", "".join(blocks), re.MULTILINE)


class Installation:
    """The page's commands in a container, one after another; each must end with 0."""

    def __init__(self, debian: BareDebian) -> None:
        self.debian = debian

    def run(self, command: str, *, drop_in: str = "") -> str:
        """Run a command and return its output; `drop_in` is typed into the editor that it opens, on a terminal."""
        (self.debian.root / "srv" / "drop-in").write_text(drop_in)
        began = time.monotonic()
        done = self.debian.run(
            f"script --quiet --return --command '{command}' /dev/null" if drop_in else command,
            directory=CHECKOUT,
            seconds=COMMAND_SECONDS,
            environment={"SYSTEMD_EDITOR": "cp /srv/drop-in"},
        )
        print(f"{time.monotonic() - began:6.1f} s  {command}", flush=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{self.journal()}"
        return done.stdout

    def until(self, command: str, words: str, seconds: float) -> str:
        """Repeat a command until these words are in its output; return the output."""
        deadline = time.monotonic() + seconds
        while True:
            done = self.debian.run(command, directory=CHECKOUT, seconds=COMMAND_SECONDS)
            if re.search(words, done.stdout):
                return done.stdout
            assert time.monotonic() < deadline, f"{command}\n{done.stdout}\n{done.stderr}\n{self.journal()}"
            time.sleep(2.0)

    def journal(self) -> str:
        """The end of the service's journal."""
        return self.debian.run(f"journalctl -u {SERVICE} | tail -20").stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A bare Debian with a checkout, and a store whose files belong to the broker's user and may be read by all."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root, and {', '.join(missing or TOOLS)} (apt-get install debootstrap systemd-container)")
    debian = BareDebian(tmp_path_factory.mktemp("debian") / "root")
    began = time.monotonic()
    try:
        debian.install()
        debian.check_out(CHECKOUT)
        unpack(STORE, debian.root).rename(debian.root / "data")
        with debian:
            print(f"\n{time.monotonic() - began:6.1f} s  a bare Debian that runs, with the checkout and a store")
            owned = "useradd --system rocketmq && chown -R rocketmq:rocketmq /data && chmod -R u=rwX,go=rX /data"
            assert debian.run(owned).returncode == 0
            yield Installation(debian)
    except NotHereError as error:
        pytest.skip(str(error))


def test_the_page_leads_to_a_running_service(installation: Installation) -> None:
    """With all messages of a real broker's store kept, as its user, and started with the machine."""
    began = time.monotonic()
    for command in commands("## systemd"):
        installation.run(command)
    (status,) = (command for command in commands("## systemd") if "reput status" in command)
    kept = rf"logic +running, {MESSAGES:,} messages.*\ntable +running, {MESSAGES:,} messages"
    assert installation.until(status, kept, KEPT_WITHIN_S).startswith("running")
    print(f"{time.monotonic() - began:6.1f} s  from a bare Debian to a service that keeps all of its store")
    assert installation.run(f"systemctl is-enabled {SERVICE}").strip() == "enabled"
    assert installation.run("ps -o user= -C reput").split() == ["reput"]


def test_prometheus_answers_what_a_panel_asks(installation: Installation) -> None:
    """By the configuration and the rules of conf/deploy, installed as the page says."""
    *installs, asks = commands("### Prometheus")
    for command in installs:
        installation.run(command)
    answer = installation.until(asks, 'query="table"', SCRAPED_WITHIN_S)
    assert re.findall(r'query="(\w+)".*=> 0 @', answer) == ["logic", "table"]
    dashboard = json.loads((ROOT / "conf" / "deploy" / "grafana" / "reput.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert any(expression.startswith(asks.split()[-1]) for expression in asked)
    assert "reput.rules.yml" in installation.run("promtool check config /etc/prometheus/prometheus.yml")


def test_a_store_that_a_group_may_read(installation: Installation) -> None:
    """The service is refused at first, in words; the drop-in of the page lets it read the store, and it continues."""
    edit, *rest = commands("### The store's permissions")
    assert rest == []
    installation.run("chmod -R o= /data")
    installation.debian.run(f"systemctl restart {SERVICE}", seconds=COMMAND_SECONDS)
    assert "Permission denied" in installation.journal()
    block = PAGE.split(f"# {edit}\n", 1)[1].split("```", 1)[0]
    installation.run(edit, drop_in=block)
    installation.run(f"systemctl restart {SERVICE}")
    installation.run(f"systemctl is-active {SERVICE}")


def test_a_driver_that_is_killed_is_started_again(installation: Installation) -> None:
    """And a stop ends it with 0."""
    installation.run(f"systemctl kill --signal=KILL --kill-whom=main {SERVICE}")
    installation.until(
        f"systemctl show --property=NRestarts,ActiveState {SERVICE}",
        r"NRestarts=1\nActiveState=active|ActiveState=active\nNRestarts=1",
        KEPT_WITHIN_S,
    )
    installation.run(f"systemctl stop {SERVICE}")
    assert "ExecMainStatus=0" in installation.run(f"systemctl show --property=ExecMainStatus {SERVICE}")
