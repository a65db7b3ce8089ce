# For the scripts beside it: a temporary folder that goes at the end, and the comparison with what was seen.
# Needs what each script says; nothing is installed outside the folder but the caches of pip, npm, Maven, Ivy and Go.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# python_with PACKAGE...: an environment in the folder, and its interpreter's path in $python.
python_with() {
    "${PYTHON:-python3}" -m venv env
    python="$work/env/bin/python"
    "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

# python_with_spark PACKAGE...: the same with Spark 4.2.0 and delta-spark 4.4.0, and the module `session`, whose `spark` is a
# session with Delta on one core.
python_with_spark() {
    python_with pyspark==4.2.0 delta-spark==4.4.0 pyarrow==26.0.1 pandas==2.3.3 "$@"
    export PYSPARK_PYTHON="$python"
    cat >session.py <<'PY'
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for name, value in (
    ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
    ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
    ("spark.sql.session.timeZone", "UTC"),
    ("spark.databricks.delta.retentionDurationCheck.enabled", "false"),
    ("spark.databricks.delta.snapshotPartitions", "1"),
    ("spark.ui.enabled", "false"),
):
    builder = builder.config(name, value)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
PY
}

# printed PROGRAM: what a Python program prints, without Spark's log, whose end is shown if the program fails.
printed() {
    "$python" "$1" 2>spark.log || {
        tail -20 spark.log >&2
        exit 1
    }
}

# jars_of GROUP:ARTIFACT:VERSION: the artifact with all it depends on, below $work/VERSION.
jars_of() {
    local group artifact version
    IFS=: read -r group artifact version <<<"$1"
    mkdir -p "pom-$version"
    cat >"pom-$version/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>findings</groupId><artifactId>findings</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version>
  </dependency></dependencies>
</project>
POM
    mvn -q -B -f "pom-$version/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/$version" >mvn.log 2>&1 || {
        cat mvn.log
        exit 1
    }
}

# broker_of VERSION [SETTING=VALUE...]: a name server and a broker on loopback, at $names and $port, that make topics when they
# are asked for; they end with the script. `client` runs a Java program beside them.
names=${NAMES_PORT:-19876} port=${BROKER_PORT:-20911}
opens=(--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED)
broker_of() {
    local version=$1 part
    jars_of "org.apache.rocketmq:rocketmq-broker:$version"
    mkdir -p names home/conf
    sed 's/rocketmq-broker/rocketmq-namesrv/' "pom-$version/pom.xml" >names/pom.xml
    mvn -q -B -f names/pom.xml dependency:copy-dependencies -DoutputDirectory="$work/$version" >mvn.log 2>&1
    for part in namesrv broker; do
        echo '<configuration/>' >"home/conf/logback_$part.xml"
    done
    export ROCKETMQ_HOME=$work/home
    printf 'listenPort=%s\n' "$names" >names.conf
    printf '%s\n' "listenPort=$port" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" autoCreateTopicEnable=true \
        "storePathRootDir=$work/store" mappedFileSizeCommitLog=1048576 maxHashSlotNum=1000 maxIndexNum=4000 "${@:2}" >broker.conf
    java "${opens[@]}" -Duser.home="$work/home" -cp "$version/*" org.apache.rocketmq.namesrv.NamesrvStartup -c names.conf >names.log 2>&1 &
    servers=$!
    java "${opens[@]}" -Duser.home="$work/home" -Xmx512m -cp "$version/*" org.apache.rocketmq.broker.BrokerStartup -c broker.conf >broker.log 2>&1 &
    servers="$servers $!"
    # Killed servers are no failure of the script.
    trap 'kill -9 $servers || true; wait $servers 2>/dev/null || true; rm -rf "$work"' EXIT
    for _ in $(seq 60); do
        grep -qs 'boot success' broker.log && return
        sleep 1
    done
    cat broker.log
    exit 1
}

# client VERSION [JVM OPTION...] FILE.java [WORD...]: its output is in client.log.
client() {
    java "${opens[@]}" -Duser.home="$work/home" -cp "$1/*" "${@:2}" >client.log 2>&1
}

# seen TEXT < OUTPUT: ends with 1 if the output is another one than was seen.
seen() {
    cat >got.txt
    cat got.txt
    if ! diff <(printf '%s\n' "$1") got.txt >/dev/null; then
        printf '\nCHANGED. Seen before:\n%s\n' "$1"
        exit 1
    fi
    printf '\nAs seen before.\n'
}
