//! The client's half.
