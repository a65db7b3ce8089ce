#!/bin/sh
# Installs the service for one broker, without starting it: install.sh INSTANCE STORE [ARGUMENT OF reput tail]...
# As root, after `python3 -m venv /opt/reput && /opt/reput/bin/pip install .`; again for each broker, and after an
# upgrade of reput. What is in /etc/reput already stays as it is.
set -eu

[ $# -ge 2 ] || { sed -n 's/^# //p; 3q' "$0" >&2; exit 2; }
instance=$1 store=$2
shift 2
here=$(dirname "$0")

install -D -m 644 "$here/reput.sysusers" /usr/lib/sysusers.d/reput.conf
systemd-sysusers reput.conf
install -D -m 644 "$here/reput@.service" /etc/systemd/system/reput@.service
install -d -o reput -g reput -m 750 /var/cache/reput /var/lib/reput

install -d /etc/reput
if [ ! -e "/etc/reput/$instance.env" ]; then
    cat >"/etc/reput/$instance.env" <<END
# The broker's store root, which holds commitlog/; reput's user must be allowed to read it.
REPUT_STORE=$store
# Further arguments of reput tail, such as --broker-conf /data/broker.conf --table /var/lib/reput/$instance/messages
REPUT_ARGUMENTS=$*
END
fi
if [ ! -e "/etc/reput/$instance.toml" ]; then
    cat >"/etc/reput/$instance.toml" <<END
# Options of this instance that differ from the defaults; conf/reput.toml has all of them. broker.conf beats this file.
metricsPort = 9464
END
fi

# Spark starts in half the time afterwards. It asks for Maven's repository; without it Spark starts all the same, if
# Delta's jars are there.
runuser -u reput -- env HOME=/var/cache/reput /opt/reput/bin/reput prepare ||
    echo "install.sh: reput prepare failed; the service starts without" >&2
[ ! -d /run/systemd/system ] || systemctl daemon-reload
