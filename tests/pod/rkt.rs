//! rkt.
