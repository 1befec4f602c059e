# For `run` and .ci/run, which read this file; say and die are the reader's.

# install_packages PACKAGE...: those that are not there, quietly; nothing is asked of the network when all are.
install_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || die "needs Debian or Ubuntu (dpkg); elsewhere see README.md for the plain cmake commands"
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local sudo=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "packages are missing and neither root nor sudo is there: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600)
  local log
  log=$(mktemp)
  if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    die "apt-get could not install ${missing[*]}; its whole output is in $log"
  fi
  rm -f "$log"
}
