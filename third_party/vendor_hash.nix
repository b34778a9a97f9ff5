# Pins 688c6d750ca7d815 (tools/vendor --pins) fetched by Python 3.12; docs/nix.md says how to renew both lines.
"sha256-/8qyA8p0r8gZwiroTk9S1FEEQqLAK5W0ZNjC4GhlCb8="
