// SPDX-License-Identifier: GPL-2.0-only

//! The plot: the story of ten thousand clients, and when a server that dies is detected.

use super::{grouped, least, mean_and_max, seconds, RATE};
use nrs_sched::{
    network::{
        story::{deaths, server, Phase},
        Point,
    },
    timeouts::terms::Terms,
};

const CLIENTS: u32 = 10_000;

/// What is drawn in a place of its own.
struct Frame {
    top: f64,
    height: f64,
    /// Seconds at the upper edge.
    most: f64,
}

const LEFT: f64 = 52.0;
const WIDTH: f64 = 640.0;
const RIGHT: f64 = LEFT + WIDTH;

fn x(second: f64) -> f64 {
    LEFT + second / Phase::Eased.end() as f64 * WIDTH
}

impl Frame {
    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn y(&self, seconds: f64) -> f64 {
        self.bottom() - seconds.min(self.most) / self.most * self.height
    }

    /// Lines and numbers at the edges.
    fn grid(&self, out: &mut Vec<String>, title: &str) {
        out.push(format!(
            "<text x=\"{LEFT}\" y=\"{}\" font-size=\"14\">{title}</text>",
            self.top - 50.0
        ));
        let step = if self.most > 100.0 { 30 } else { 10 };
        for mark in (0..=self.most as u32).step_by(step) {
            let y = self.y(mark.into());
            out.push(format!(
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
                LEFT - 6.0,
                y + 4.0,
            ));
        }
        for mark in (0..=Phase::Eased.end()).step_by(120) {
            let (x, bottom) = (x(mark as f64), self.bottom());
            out.push(format!(
                "<path d=\"M{x:.1} {}V{bottom}\" stroke=\"#eeeeee\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{mark}</text>",
                self.top,
                bottom + 16.0,
            ));
        }
        out.push(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">time, s</text>",
            LEFT + WIDTH / 2.0,
            self.bottom() + 32.0
        ));
        let (from, to) = (x(Phase::Full.end() as f64), x(Phase::Slowed.end() as f64));
        out.push(format!(
            "<rect x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"#d62728\" opacity=\"0.1\"/>",
            self.top,
            to - from,
            self.height
        ));
    }

    /// A line through points, and its name in a place of the legend.
    fn line(
        &self,
        out: &mut Vec<String>,
        points: &[(f64, f64)],
        (place, name, style): (usize, &str, &str),
    ) {
        let (left, top) = (
            LEFT + (place % 2) as f64 * 280.0,
            self.top - 34.0 + (place / 2) as f64 * 16.0,
        );
        out.push(format!(
            "<path d=\"M{left} {top}h22\" {style}/><text x=\"{}\" y=\"{}\">{name}</text>",
            left + 28.0,
            top + 4.0
        ));
        let mut path = String::new();
        let mut last = None;
        for (place, (second, value)) in points.iter().enumerate() {
            let y = format!("{:.1}", self.y(*value));
            let ends = place + 1 == points.len();
            if last.as_ref() != Some(&y) || ends {
                let x = x(*second);
                path.push_str(&match last {
                    Some(_) => format!("H{x:.1}V{y}"),
                    None => format!("M{x:.1} {y}"),
                });
                last = Some(y);
            }
        }
        out.push(format!(
            "<path d=\"{path}\" fill=\"none\" {style} stroke-linejoin=\"round\"/>"
        ));
    }
}

/// Draws both.
pub fn svg() -> String {
    let setup = server(CLIENTS, RATE, Terms::default());
    let (growing, grown) = (Phase::Light.end(), Phase::Growing.end());
    let times: Vec<u64> = (30..Phase::Eased.end())
        .step_by(5)
        .filter(|second| !(growing..grown).contains(second))
        .collect();
    let (mut sim, found) = deaths(setup, &times);
    let least = least(sim.take_longest());
    let longest = found.iter().map(|times| mean_and_max(times).1);
    let adaptive: Vec<(f64, f64)> = times.iter().map(|time| *time as f64).zip(longest).collect();
    let of = |f: fn(&Point) -> u32| -> Vec<(f64, f64)> {
        let points = sim.trace().iter();
        points
            .map(|point| (point.second as f64, seconds(f(point))))
            .collect()
    };
    let most = of(|point| point.timeout)
        .iter()
        .chain(&adaptive)
        .fold(0.0, |most: f64, (_, value)| most.max(*value));
    let most = (most / 30.0).ceil() * 30.0;
    let story = Frame {
        top: 72.0,
        height: 220.0,
        most,
    };
    let death = Frame {
        top: story.bottom() + 118.0,
        height: 180.0,
        most,
    };
    let mut out = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">",
            RIGHT + 16.0,
            death.bottom() + 44.0
        ),
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->".to_string(),
        "<title>Service times, estimates, timeouts and detection of a dead server</title>".to_string(),
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>".to_string(),
    ];
    let clients = grouped(CLIENTS.into());
    story.grid(
        &mut out,
        &format!("{clients} clients, a device that is 100 times slower for 60 s: seconds"),
    );
    let colour = |colour: &str| format!("stroke=\"{colour}\" stroke-width=\"2\"");
    let dashed = format!("{} stroke-dasharray=\"6 4\"", colour("#7f7f7f"));
    let fixed: Vec<(f64, f64)> = [0, Phase::Eased.end()]
        .map(|second| (second as f64, f64::from(least)))
        .to_vec();
    for (place, (name, points, style)) in [
        (
            "mean timeout of clients",
            of(|point| point.timeout),
            colour("#1f77b4"),
        ),
        (
            "estimate of the server",
            of(|point| point.estimate),
            colour("#2ca02c"),
        ),
        (
            "longest wait for a reply in a second",
            of(|point| point.longest),
            colour("#d95f02"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        story.line(&mut out, &points, (place, name, &style));
    }
    death.grid(
        &mut out,
        "The server dies at that time: longest time that clients wait in vain, s",
    );
    death.line(&mut out, &adaptive, (0, "adaptive", &colour("#1f77b4")));
    let name = format!("fixed, {least} s: the smallest one without false timeouts");
    death.line(&mut out, &fixed, (1, &name, &dashed));
    out.push("</svg>\n".to_string());
    out.join("\n")
}
