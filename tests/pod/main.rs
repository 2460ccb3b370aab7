//! Tests on a real systemd.
