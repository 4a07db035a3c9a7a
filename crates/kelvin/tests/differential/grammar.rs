//! Shapes of commands, written as the manual writes syntax.
//!
//! ```text
//! WORD          itself
//! <key>         a random argument of this sort, see `words`
//! [a | b c]     one of the alternatives or nothing, equally often
//! (a | b c)     one of the alternatives
//! x+            x one to four times
//! ```

use super::random::Random;

/// Repetitions of `+`.
const REPEATS_MAX: usize = 4;

/// A parsed shape.
#[derive(Debug)]
pub enum Shape {
    Word(String),
    Sort(String),
    All(Vec<Shape>),
    OneOf(Vec<Shape>),
    Maybe(Box<Shape>),
    Repeated(Box<Shape>),
}

impl Shape {
    /// Parses a shape. Panics: when brackets do not match.
    pub fn parse(text: &str) -> Shape {
        let mut spaced = text.to_owned();
        for mark in ["[", "]", "(", ")", "|", "+"] {
            spaced = spaced.replace(mark, &format!(" {mark} "));
        }
        let tokens: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = tokens.as_slice();
        let shape = alternatives(&mut rest);
        assert!(rest.is_empty(), "{text}: unmatched {}", rest[0]);
        shape
    }

    /// Writes one instance: `sort` gives the words that stand for a `<sort>`.
    pub fn write(&self, random: &mut Random, emit: &mut impl FnMut(&mut Random, Part<'_>)) {
        match self {
            Shape::Word(word) => emit(random, Part::Word(word)),
            Shape::Sort(sort) => emit(random, Part::Sort(sort)),
            Shape::All(shapes) => shapes.iter().for_each(|shape| shape.write(random, emit)),
            Shape::OneOf(shapes) => {
                let index = random.below(shapes.len());
                shapes[index].write(random, emit);
            }
            Shape::Maybe(shape) => {
                if random.chance(1, 2) {
                    shape.write(random, emit);
                }
            }
            Shape::Repeated(shape) => {
                for _ in 0..=random.below(REPEATS_MAX) {
                    shape.write(random, emit);
                }
            }
        }
    }
}

/// A piece of an instance.
pub enum Part<'a> {
    Word(&'a str),
    Sort(&'a str),
}

fn alternatives(rest: &mut &[&str]) -> Shape {
    let mut shapes = vec![sequence(rest)];
    while rest.first() == Some(&"|") {
        *rest = &rest[1..];
        shapes.push(sequence(rest));
    }
    if shapes.len() == 1 { shapes.remove(0) } else { Shape::OneOf(shapes) }
}

fn sequence(rest: &mut &[&str]) -> Shape {
    let mut shapes = Vec::new();
    while let Some((&token, behind)) = rest.split_first() {
        if matches!(token, "]" | ")" | "|") {
            break;
        }
        *rest = behind;
        let shape = match token {
            "[" => Shape::Maybe(Box::new(bracketed(rest, "]"))),
            "(" => bracketed(rest, ")"),
            "+" => Shape::Repeated(Box::new(shapes.pop().expect("something to repeat"))),
            word => match word.strip_prefix('<').and_then(|word| word.strip_suffix('>')) {
                Some(sort) => Shape::Sort(sort.to_owned()),
                None => Shape::Word(word.to_owned()),
            },
        };
        shapes.push(shape);
    }
    Shape::All(shapes)
}

fn bracketed(rest: &mut &[&str], end: &str) -> Shape {
    let shape = alternatives(rest);
    assert_eq!(rest.first(), Some(&end), "unmatched bracket");
    *rest = &rest[1..];
    shape
}

#[test]
fn shapes_give_what_they_say() {
    let shape = Shape::parse("SET <key> (<a> <b>)+ [NX | XX Y]");
    let mut random = Random::new(7);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let mut words = Vec::new();
        shape.write(&mut random, &mut |_, part| {
            words.push(match part {
                Part::Word(word) => word.to_owned(),
                Part::Sort(sort) => format!("<{sort}>"),
            });
        });
        seen.insert(words.join(" "));
    }
    assert_eq!(seen.len(), 3 * REPEATS_MAX, "{seen:?}");
    assert!(seen.contains("SET <key> <a> <b> <a> <b> XX Y"), "{seen:?}");
    assert!(seen.contains("SET <key> <a> <b>"), "{seen:?}");
}
