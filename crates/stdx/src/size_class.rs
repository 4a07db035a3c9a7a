/// What an allocation of `size` bytes takes: jemalloc's size classes with a quantum of 8, four a
/// doubling (jemalloc(3), "Size classes").
#[inline]
pub fn size_class(size: usize) -> usize {
    match size {
        0 => 0,
        1..=64 => size.next_multiple_of(8),
        _ => {
            let spacing = (size - 1).ilog2() - 2;
            size.next_multiple_of(1 << spacing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_four_a_doubling() {
        let cases = [
            (0, 0),
            (1, 8),
            (24, 24),
            (25, 32),
            (64, 64),
            (65, 80),
            (512, 512),
            (513, 640),
            (4097, 5120),
        ];
        for (size, class) in cases {
            assert_eq!(size_class(size), class, "{size}");
        }
    }
}
