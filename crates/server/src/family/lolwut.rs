//! The picture of LOLWUT: a snow crystal, which grows below 273.15 K.
//!
//! One arm is drawn at random, with twigs at 60 degrees on both sides, and repeated around the
//! centre: a crystal has the symmetries of a hexagon.

/// Length of an arm, in lines.
const ARM: i32 = 11;
/// Columns of a line: characters are twice as high as wide, and twigs reach beyond the arms.
const COLUMNS: i32 = 4 * ARM + 1;
const LINES: i32 = 2 * ARM + 1;

/// Draws the crystal of a seed.
pub(super) fn snow_crystal(mut seed: u64) -> String {
    let mut canvas = vec![vec![b' '; COLUMNS as usize]; LINES as usize];
    for step in 0..=ARM {
        plot(&mut canvas, f64::from(step), 0.0);
        // Twigs leave gaps between them, and are shorter near the tip.
        let length = if step % 3 == 2 { (seed % 7) as i32 } else { 0 };
        seed = seed.rotate_right(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for twig in 1..=length.min(ARM - step) {
            let (sin, cos) = 60f64.to_radians().sin_cos();
            let (along, across) = (f64::from(step) + f64::from(twig) * cos, f64::from(twig) * sin);
            plot(&mut canvas, along, across);
            plot(&mut canvas, along, -across);
        }
    }
    let mut text = String::new();
    for line in canvas {
        text.push_str(String::from_utf8_lossy(&line).trim_end());
        text.push('\n');
    }
    text
}

/// Marks a point of an arm on all six of them.
fn plot(canvas: &mut [Vec<u8>], along: f64, across: f64) {
    for turn in [0f64, 60.0, 120.0] {
        let (sin, cos) = (turn + 90.0).to_radians().sin_cos();
        let column = ((along * cos - across * sin) * 2.0).round() as i32;
        let line = (along * sin + across * cos).round() as i32;
        // The opposite arm, exactly.
        for (column, line) in [(column, line), (-column, -line)] {
            let (column, line) = (column + COLUMNS / 2, line + LINES / 2);
            if (0..COLUMNS).contains(&column) && (0..LINES).contains(&line) {
                canvas[line as usize][column as usize] = b'*';
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crystals_are_symmetrical_and_differ() {
        for seed in 0..64u64 {
            let text = snow_crystal(seed.wrapping_mul(0x1234_5678_9ABC_DEF1));
            let width = COLUMNS as usize;
            let lines: Vec<String> = text.lines().map(|line| format!("{line:width$}")).collect();
            assert_eq!(lines.len(), LINES as usize);
            let turned: Vec<String> =
                lines.iter().rev().map(|line| line.chars().rev().collect()).collect();
            assert_eq!(lines, turned, "seed {seed}");
        }
        assert_ne!(snow_crystal(5), snow_crystal(7));
    }
}
