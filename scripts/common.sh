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
    apt-get update -qq >/dev/null || die "apt-get update failed: is there a network?"
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
      || die "could not install ${missing[*]}, needed for $why"
  else
    die "please install ${missing[*]} ($why): sudo apt-get install ${missing[*]}"
  fi
}

# A C compiler builds the cryptography library (aws-lc-rs).
need_rust() {
  command -v cargo >/dev/null || die "Rust is missing: install it with rustup, or Debian's cargo-web and rustc-web packages"
  local version
  version=$(rustc --version | awk '{print $2}')
  printf '%s\n1.88.0\n' "$version" | sort -V | head -1 | grep -qx 1.88.0 \
    || die "Rust 1.88 or newer is needed, this is $version: run 'rustup update stable'"
  command -v cc >/dev/null || need_packages "a C compiler for the cryptography library" gcc libc6-dev
}
