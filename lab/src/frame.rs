//! What a picture with two axes has around its data, as SVG: a title, a grid with its numbers, and the names of the axes.

use std::fmt::Write as _;

/// The size of a picture, and where its data is, in pixels.
pub struct Frame {
    /// Of the picture.
    pub width: f64,
    /// Of the picture.
    pub height: f64,
    /// Beside the data.
    pub left: f64,
    /// Beside the data.
    pub right: f64,
    /// Above the data.
    pub top: f64,
    /// Below the data.
    pub bottom: f64,
    /// The line on which the title stands.
    pub title: f64,
}

/// A line of the grid: where, and its number.
pub type Tick = (f64, String);

impl Frame {
    /// The begin of a picture, with its title.
    pub fn open(&self, title: &str) -> String {
        let Self { width, height, left, title: line, .. } = self;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"11\" \
             fill=\"#2b2f36\">\n<title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" \
             fill=\"#ffffff\"/>\n\
             <text x=\"{left}\" y=\"{line}\" font-size=\"15\" font-weight=\"600\">{title}</text>\n"
        )
    }

    /// The grid, and the names of the horizontal and of the vertical axis.
    pub fn axes(
        &self,
        svg: &mut String,
        across: impl Iterator<Item = Tick>,
        up: impl Iterator<Item = Tick>,
        names: (&str, &str),
    ) {
        let Self { left, top, .. } = self;
        let (right, bottom) = (self.width - self.right, self.height - self.bottom);
        for (x, number) in across {
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e3e6ea\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{number}</text>",
                bottom + 16.0
            );
        }
        for (y, number) in up {
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e3e6ea\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{number}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        let middle = f64::midpoint(*top, bottom);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"16\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle:.1})\">{}</text>",
            f64::midpoint(*left, right),
            self.height - 10.0,
            escaped(names.0),
            escaped(names.1)
        );
    }
}

/// A text inside HTML or SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Digits in groups of three: 12,345.
pub fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
