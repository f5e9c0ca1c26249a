//! The push side against stock git.

mod history;
mod layers;
mod packs;
mod repo;
