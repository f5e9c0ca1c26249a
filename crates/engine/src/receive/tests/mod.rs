//! The push side against stock git.

mod history;
mod layers;
mod measure;
mod packs;
mod pushes;
mod repo;
