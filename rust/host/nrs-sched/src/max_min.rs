// SPDX-License-Identifier: GPL-2.0-only

//! Weighted max-min fairness over servers: the service that each job gets if service can be divided
//! at will.
//!
//! No job can get more without taking from a job that has less by its weight. The allocation is
//! computed by water-filling one server after another until it converges.

/// Maximum number of sweeps over all servers.
const SWEEPS: u32 = 5000;

/// A job at one server.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Weight of the job.
    pub weight: f64,
    /// Service of the job at other servers.
    pub floor: f64,
    /// Maximum service of the job at this server.
    pub limit: f64,
}

impl Member {
    /// Returns the service of the member at `level`.
    pub fn at(&self, level: f64) -> f64 {
        (level * self.weight - self.floor).clamp(0.0, self.limit)
    }
}

/// Returns the water level, by weight, at which `members` use `capacity`. If all members are at
/// their limits, a higher level changes nothing.
pub fn level(members: &[Member], capacity: f64) -> f64 {
    let mut bends: Vec<(f64, f64)> = Vec::new();
    for member in members {
        bends.push((member.floor / member.weight, member.weight));
        bends.push((
            (member.floor + member.limit) / member.weight,
            -member.weight,
        ));
    }
    bends.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (mut level, mut width, mut left) = (0.0, 0.0, capacity);
    for (at, change) in bends {
        let below = width * (at - level);
        if width > 0.0 && below >= left {
            return level + left / width;
        }
        left -= below;
        level = at;
        width += change;
    }
    level
}

/// A job: weight, servers, and maximum service at each of them.
pub type Job<'a> = (f64, &'a [usize], f64);

/// Returns the total service that each of `jobs` gets from servers with these capacities.
pub fn max_min(capacities: &[f64], jobs: &[Job<'_>]) -> Vec<f64> {
    let mut got = vec![vec![0f64; capacities.len()]; jobs.len()];
    let mut sums = vec![0f64; jobs.len()];
    let enough = capacities.iter().copied().fold(0.0, f64::max) * 1e-10;
    for _ in 0..SWEEPS {
        let mut moved = 0f64;
        for (server, capacity) in capacities.iter().enumerate() {
            let here = |job: &usize| jobs[*job].1.contains(&server);
            let here: Vec<usize> = (0..jobs.len()).filter(here).collect();
            let member = |job: &usize| Member {
                weight: jobs[*job].0,
                floor: sums[*job] - got[*job][server],
                limit: jobs[*job].2,
            };
            let members: Vec<Member> = here.iter().map(member).collect();
            let level = level(&members, *capacity);
            for (job, member) in here.into_iter().zip(members) {
                let more = member.at(level) - got[job][server];
                moved = moved.max(more.abs());
                sums[job] += more;
                got[job][server] += more;
            }
        }
        if moved <= enough {
            break;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: f64 = f64::INFINITY;

    /// Compares allocations with known results: service elsewhere, weights and limits count.
    #[test]
    fn shares() {
        type Case<'a> = (&'a [f64], &'a [Job<'a>], &'a [f64]);
        let cases: [Case<'_>; 4] = [
            (
                &[6000.0, 2000.0, 1000.0],
                &[
                    (1.0, &[0, 1], ALL),
                    (1.0, &[1, 2], ALL),
                    (1.0, &[1, 2], ALL),
                    (1.0, &[2], ALL),
                ],
                &[6000.0, 1000.0, 1000.0, 1000.0],
            ),
            (
                &[900.0, 900.0],
                &[(4.0, &[0, 1], ALL), (2.0, &[0], ALL), (3.0, &[1], ALL)],
                &[800.0, 400.0, 600.0],
            ),
            (
                &[1000.0],
                &[(1.0, &[0], 50.0), (1.0, &[0], ALL), (1.0, &[], ALL)],
                &[50.0, 950.0, 0.0],
            ),
            (&[1000.0], &[(1.0, &[0], 50.0)], &[50.0]),
        ];
        for (capacities, jobs, want) in cases {
            let got = max_min(capacities, jobs);
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 0.01, "{got} {want}: {jobs:?}");
            }
        }
    }
}
