# Arguments: the folder of the cluster, that of PostgreSQL's programs.
dir=$1 bin=$2 pid=

# processes prints the server's: first the postmaster, which would start others again.
processes() {
  echo "$pid"
  for stat in /proc/[0-9]*/stat; do
    read -r child _ _ parent _ <"$stat" && [ "$parent" = "$pid" ] && echo "$child"
  done 2>/dev/null
}

signal() { for p in $(processes); do kill "-$1" "$p" 2>/dev/null; done; }

end() { # with a signal of the postmaster: INT breaks connections, QUIT does not even tidy up
  [ -n "$pid" ] || return 0
  signal CONT
  kill "-$1" "$pid" 2>/dev/null
  wait "$pid"
  pid=
}

while read -r command; do
  case $command in
  init)
    # Turkish has other small letters and another order than C: what depends on the locale shows.
    "$bin/initdb" -D "$dir/data" -U toolfinch -A trust -E UTF8 --locale=C --locale-provider=icu --icu-locale=tr --no-sync --no-instructions >"$dir/log" 2>&1 || { echo failed; continue; }
    {
      echo "listen_addresses = ''"
      echo "unix_socket_directories = '$dir'"
      echo 'fsync = off' # what is here may be lost
      echo 'synchronous_commit = off'
      echo 'full_page_writes = off'
      echo 'wal_level = minimal'
      echo 'max_wal_senders = 0'
      echo 'max_connections = 200'
      echo 'shared_buffers = 32MB'
      echo 'jit = off'
      if [ -e "$bin/../lib/pg_stat_statements.so" ]; then echo "shared_preload_libraries = 'pg_stat_statements'"; fi
    } >>"$dir/data/postgresql.conf"
    ;;
  start)
    "$bin/postgres" -D "$dir/data" </dev/null >>"$dir/log" 2>&1 &
    pid=$!
    ;;
  stop) end INT ;;
  pause) signal STOP ;;
  resume) signal CONT ;;
  esac
  echo done
done
end QUIT
rm -rf "$dir"
