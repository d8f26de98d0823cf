// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::rng::Rng;

/// Sums that grow slot by slot, and change meanwhile, against plain addition.
#[test]
fn sums_against_model() {
    let mut flat = Flat::new(3000, Draw::Random).unwrap();
    let mut need = SelectNeed::default();
    flat.wants(3000, &mut need);
    flat.feed(need.allocate().unwrap());
    let mut model: Vec<u64> = Vec::new();
    let mut rng = Rng::new(4);
    for slot in 0..3000u32 {
        flat.append();
        model.push(0);
        for _ in 0..2 {
            let at = rng.below(model.len() as u64) as usize;
            let weight = [0u64, 1, 64, 1 << 31][rng.below(4) as usize];
            flat.add(at as u32, weight.wrapping_sub(model[at]));
            model[at] = weight;
        }
        if slot % 100 != 99 {
            continue;
        }
        let mut sum = 0;
        for (slot, weight) in (0..).zip(&model) {
            if *weight > 0 {
                assert_eq!(flat.locate(sum), slot);
                assert_eq!(flat.locate(sum + weight - 1), slot);
            }
            sum += weight;
        }
    }
}
