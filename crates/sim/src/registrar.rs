//! A client that makes, deletes and looks for repositories.

use crate::forge::FORMAT;
use crate::node::{Node, expect_outage};
use crate::pusher::is_unclear;
use crate::registers::Action;
use crate::world::World;
use cuesta_engine::{EngineError, RepositoryName};
use std::sync::Arc;

/// Few names, so that clients meet.
const NAMES: [&str; 3] = ["sim/a", "sim/b", "other/a"];

/// See the module.
pub(crate) struct Registrar {
    pub(crate) world: Arc<World>,
    pub(crate) random: fastrand::Rng,
}

/// What is known of a name: whether there is a repository.
const ABSENT: Option<()> = None;
const PRESENT: Option<()> = Some(());

impl Registrar {
    pub(crate) async fn run(mut self, steps: u32) {
        for _ in 0..steps {
            self.world.nap(&mut self.random).await;
            let Some(node) = self.world.some_node(&mut self.random) else {
                continue;
            };
            let name = NAMES[self.random.usize(..NAMES.len())];
            let called = self.world.tick();
            let action = match self.random.u8(0..4) {
                0 => make(&node, name).await,
                1 => delete(&node, name).await,
                _ => look(&node, name).await,
            };
            if let Some(action) = action {
                let answered = match action {
                    Action::Unknown { .. } => u64::MAX,
                    _ => self.world.tick(),
                };
                self.world.saw_name(name, called, answered, action);
            }
        }
    }
}

/// Notes for each name what a node without faults shows.
pub(crate) async fn look_at_all(world: &World, node: &Node) {
    for name in NAMES {
        let called = world.tick();
        let action = look(node, name).await.expect("an observer sees");
        let answered = world.tick();
        world.saw_name(name, called, answered, action);
    }
}

fn parse(name: &str) -> RepositoryName {
    RepositoryName::parse(name).expect("a good name")
}

async fn make(node: &Node, name: &str) -> Option<Action<()>> {
    match node.engine.create_repository(&parse(name), FORMAT, "registrar").await {
        Ok(_) => Some(Action::Swapped {
            old: ABSENT,
            new: PRESENT,
        }),
        Err(EngineError::RepositoryExists(_)) => Some(Action::Refused { old: ABSENT }),
        Err(error) if is_unclear(&error) => Some(Action::Unknown {
            old: ABSENT,
            new: PRESENT,
        }),
        Err(error) => {
            expect_outage(&error);
            None
        }
    }
}

async fn delete(node: &Node, name: &str) -> Option<Action<()>> {
    match node.engine.delete_repository(&parse(name), "registrar").await {
        Ok(()) => Some(Action::Swapped {
            old: PRESENT,
            new: ABSENT,
        }),
        Err(EngineError::NoRepository(_)) => Some(Action::Read(ABSENT)),
        // It was replaced by another of its name meanwhile.
        Err(EngineError::Conflict(_)) => None,
        Err(error) if is_unclear(&error) => Some(Action::Unknown {
            old: PRESENT,
            new: ABSENT,
        }),
        Err(error) => {
            expect_outage(&error);
            None
        }
    }
}

/// A repository that is found is a repository: it has a format and a `HEAD`.
async fn look(node: &Node, name: &str) -> Option<Action<()>> {
    let found = match node.engine.repository(&parse(name)).await {
        Ok(found) => found,
        Err(error) => {
            expect_outage(&error);
            return None;
        }
    };
    if let Some(repository) = &found {
        match repository.view().await {
            Ok(view) => {
                assert_eq!(view.state().object_format(), Some(FORMAT), "'{name}' is not begun");
                assert_eq!(view.state().symrefs().len(), 1, "'{name}' has no HEAD");
            }
            Err(error) => expect_outage(&error),
        }
    }
    Some(Action::Read(found.map(|_| ())))
}
