use super::*;
use proptest::prelude::*;

const RECIPE_BYTES_MAX: usize = 4 << 20;

/// Two layers, told apart by their bytes.
fn layer(slot: u32, range: &Range<u64>) -> Bytes {
    range
        .clone()
        .map(|at| (at as u8).wrapping_mul(3) ^ (slot as u8))
        .collect()
}

fn name(number: u8) -> KeptName {
    KeptName {
        family: [0; 8],
        digest: [number; 32],
    }
}

fn remembered(recipe: Recipe, layers: &[u64]) -> Remembered {
    Remembered {
        recipe,
        layers: layers.iter().map(|layer| LayerId((*layer).into())).collect(),
        objects: 1,
        access: Access::Scan,
    }
}

/// Reads the pack of a recipe from `at` on; counts the reads.
fn read(recipe: &Recipe, mut at: u64) -> (Vec<u8>, usize) {
    let (mut pack, mut reads) = (Vec::new(), 0);
    while let Next::Step(step) = recipe.next(at) {
        assert!(step.end > at, "a step goes on");
        at = step.end;
        let read = match &step.read {
            Some((slot, range)) => {
                assert!(range.end - range.start <= UNIT_BYTES);
                reads += 1;
                layer(*slot, range)
            }
            None => Bytes::new(),
        };
        step.assemble(&read)
            .unwrap()
            .iter()
            .for_each(|chunk| pack.extend_from_slice(chunk));
    }
    (pack, reads)
}

#[derive(Clone, Debug)]
enum Put {
    Stored(u32, u64, u64),
    Made(Vec<u8>),
}

fn puts() -> impl Strategy<Value = Vec<Put>> {
    let stored = (0..2u32, 0..3_000_000u64, 0..200_000u64).prop_map(|(slot, from, len)| Put::Stored(slot, from, len));
    let long = (0..2u32, 0..100u64, 0..3_000_000u64).prop_map(|(slot, from, len)| Put::Stored(slot, from, len));
    let made = prop::collection::vec(any::<u8>(), 0..100).prop_map(Put::Made);
    prop::collection::vec(prop_oneof![4 => stored, 1 => long, 4 => made], 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_recipe_gives_what_was_noted_from_any_place(puts in puts(), cut in 0.0..1.0f64) {
        let (recipe, mut pack) = (Recipe::new(RECIPE_BYTES_MAX), Vec::new());
        for put in puts {
            match put {
                Put::Stored(slot, from, len) => {
                    recipe.stored(slot, &(from..from + len));
                    pack.extend_from_slice(&layer(slot, &(from..from + len)));
                }
                Put::Made(bytes) => {
                    recipe.made(&bytes);
                    pack.extend_from_slice(&bytes);
                }
            }
        }
        let at = (pack.len() as f64 * cut) as usize;
        prop_assert_eq!(recipe.len(), pack.len() as u64);
        prop_assert!(read(&recipe, 0).0 == pack);
        prop_assert!(read(&recipe, at as u64).0 == pack[at..]);
        prop_assert!(matches!(recipe.next(pack.len() as u64), Next::NotYet));
        recipe.end();
        prop_assert!(matches!(recipe.next(pack.len() as u64), Next::End));
        prop_assert!(read(&recipe, 0).0 == pack);
    }
}

#[test]
fn neighbours_are_read_together_and_distant_ranges_are_not() {
    let recipe = Recipe::new(RECIPE_BYTES_MAX);
    for at in 0..100 {
        recipe.stored(0, &(at * 1_000..at * 1_000 + 900));
        recipe.made(b"between");
    }
    assert_eq!(read(&recipe, 0).1, 1);
    recipe.stored(0, &(100_000 + GAP_BYTES_MAX..200_000));
    assert_eq!(read(&recipe, 0).1, 2);
    recipe.stored(0, &(5..10));
    recipe.stored(1, &(10..20));
    assert_eq!(read(&recipe, 0).1, 4);
    assert_eq!(read(&Recipe::of_layer(1, 3 * UNIT_BYTES), 0).1, 3);
}

#[test]
fn a_recipe_that_grows_too_long_is_given_up() {
    let recipe = Recipe::new(RECIPE_BYTES_MAX);
    let parts = (RECIPE_BYTES_MAX / size_of::<Part>()) as u64;
    (0..parts).for_each(|part| recipe.stored(0, &(2 * part..2 * part + 1)));
    assert!(matches!(recipe.next(parts), Next::NotYet));
    recipe.stored(0, &(7..8));
    assert!(matches!(recipe.next(0), Next::TooLong));
    recipe.made(b"more");
    recipe.end();
    assert!(!recipe.is_whole() && matches!(recipe.next(0), Next::TooLong));
}

#[test]
fn recipes_hold_for_their_layers_alone() {
    let recipes = Recipes::default();
    recipes.remember(name(1), remembered(Recipe::of_layer(0, 9), &[1, 2]));
    assert!(recipes.find(&name(2), &[LayerId(1), LayerId(2)]).is_none());
    assert!(recipes.find(&name(1), &[LayerId(1), LayerId(2)]).is_some());
    for others in [
        &[LayerId(2), LayerId(1)][..],
        &[LayerId(1)],
        &[LayerId(1), LayerId(2), LayerId(3)],
    ] {
        recipes.remember(name(1), remembered(Recipe::of_layer(0, 9), &[1, 2]));
        assert!(recipes.find(&name(1), others).is_none());
        assert!(
            recipes.find(&name(1), &[LayerId(1), LayerId(2)]).is_none(),
            "its layers are gone"
        );
    }
}

#[test]
fn the_longest_unused_recipe_goes_first() {
    let recipes = Recipes::default();
    let numbers = 0..u8::try_from(RECIPES_MAX).unwrap();
    for number in numbers {
        recipes.remember(name(number), remembered(Recipe::of_layer(0, 9), &[1]));
    }
    assert!(recipes.find(&name(0), &[LayerId(1)]).is_some());
    recipes.remember(name(250), remembered(Recipe::of_layer(0, 9), &[1]));
    assert!(recipes.find(&name(1), &[LayerId(1)]).is_none());
    assert!(recipes.find(&name(0), &[LayerId(1)]).is_some());
    let large = || {
        let recipe = Recipe::new(RECIPE_BYTES_MAX);
        recipe.made(&vec![0; RECIPE_BYTES_MAX - size_of::<Part>()]);
        recipe.end();
        assert!(recipe.is_whole());
        remembered(recipe, &[1])
    };
    for number in 100..105 {
        recipes.remember(name(number), large());
    }
    assert!(recipes.find(&name(0), &[LayerId(1)]).is_none());
    assert!(recipes.find(&name(100), &[LayerId(1)]).is_none());
    assert!(recipes.find(&name(101), &[LayerId(1)]).is_some());
}

#[test]
fn recipes_under_way_share_a_bound() {
    let recipes = Recipes::default();
    let rooms: Vec<Room> = (0..5).map(|_| recipes.room(GROWING_BYTES_MAX / 4)).collect();
    let bytes: Vec<usize> = rooms.iter().map(Room::bytes).collect();
    assert_eq!(
        bytes,
        [[GROWING_BYTES_MAX / 4; 4].as_slice(), &[SMALL_BYTES_MAX]].concat()
    );
    drop(rooms);
    assert_eq!(recipes.room(GROWING_BYTES_MAX).bytes(), GROWING_BYTES_MAX);
}
