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
