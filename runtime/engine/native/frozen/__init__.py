"""Native programs as files: what other processes map and run, without a compiler."""
