//! The push side against stock git.

mod births;
mod cold;
mod differ;
mod flushes;
mod history;
mod large;
mod layers;
mod measure;
mod packs;
mod pushes;
mod repo;
