# Shared by ./demo and ./test: says what is missing, and installs it where that is possible.

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf 'quicket: %s\n' "$*" >&2; exit 1; }

# As root on Debian: installs packages. Otherwise: says in one sentence what to install.
need_packages() {
  local why=$1 missing=() package
  shift
  for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]} ($why)"
    export DEBIAN_FRONTEND=noninteractive
    # Two steps at once may miss something, and apt locks its lists without waiting.
    flock "$0" apt-get update -qq >/dev/null || die "apt-get update failed: is there a network?"
    flock "$0" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
      || die "could not install ${missing[*]}, needed for $why"
  else
    die "please install ${missing[*]} ($why): sudo apt-get install ${missing[*]}"
  fi
}

# Rust, and a C compiler for the cryptography library (aws-lc-rs).
need_rust() {
  # rustup puts it there, but not every shell looks there.
  command -v cargo >/dev/null || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  command -v cargo >/dev/null || need_packages "Rust, unless you prefer rustup" cargo-web rustc-web
  local version
  version=$(rustc --version | awk '{print $2}')
  newest "$version" 1.91.0 || die "Rust 1.91 or newer is needed, this is $version: run 'rustup update stable'"
  command -v cc >/dev/null || need_packages "a C compiler for the cryptography library" gcc libc6-dev
}

# The subcommand of Cargo, by the names that Debian and rustup have for it.
need_cargo_command() {
  cargo "$1" --version >/dev/null 2>&1 && return 0
  if command -v rustup >/dev/null; then
    say "installing $3"
    rustup component add "$3" || die "could not install $3: run 'rustup component add $3'"
  else
    need_packages "cargo $1" "$2"
  fi
}

# Python with what `python3 -m venv` needs.
need_python() {
  need_packages "$1" python3
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages "$1" python3-venv
}

# Go as new as the module in a folder asks for. Older ones get it from Go's module proxy: from 1.21
# on by themselves, before that (Debian 12) by hand.
need_go() {
  local why=$1 folder=$2 wanted have root
  command -v go >/dev/null || need_packages "$why" golang-go ca-certificates
  wanted=$(awk '$1 == "go" { print $2 }' "$folder/go.mod")
  have=$(cd / && GOTOOLCHAIN=local go env GOVERSION)
  have=${have#go}
  newest "$have" "$wanted" && return 0
  say "getting Go $wanted: this is $have ($why)"
  if newest "$have" 1.21; then
    export GOTOOLCHAIN=go$wanted
  else
    root=$(cd / && go mod download -json "golang.org/toolchain@v0.0.1-go$wanted.$(go env GOOS)-$(go env GOARCH)" \
      | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
    [ -n "$root" ] || die "could not get Go $wanted: install it by hand"
    # Files of modules are not executable by themselves.
    find "$root/bin" "$root/pkg/tool" -type f -exec chmod +x {} +
    export GOROOT=$root PATH=$root/bin:$PATH
  fi
  go version >/dev/null || die "could not get Go $wanted: install it by hand"
}

# Builds programs without optimization, with the features that tests have of each crate. Cargo unites those that the packages of one
# command ask for, and compiles again, with all above it, what another command wants with others: so all name the whole workspace. What
# tests alone ask for counts where an example is among what is built.
build_for_tests() { cargo build --quiet --workspace --example load "$@"; }

# Whether the first version is at least the second.
newest() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -1)" = "$1" ]; }
