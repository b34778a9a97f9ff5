#!/bin/bash
# The archiver of release builds.
exec "$ZIG" ar "$@"
