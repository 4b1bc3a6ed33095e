#include "lamina/plot/png.h"

#include "lamina/base/error.h"

#ifdef LAMINA_CAIRO
#include <cairo.h>

#include <cmath>
#include <numbers>

#include "lamina/base/files.h"
#endif

namespace lamina::plot {

#ifdef LAMINA_CAIRO
namespace {

// Draws at twice the resolution, so that text and thin lines stay sharp.
constexpr double kScale = 2;

class CairoCanvas : public Canvas {
 public:
  CairoCanvas(int width, int height)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width * kScale),
                                            static_cast<int>(height * kScale))),
        cairo_(cairo_create(surface_)) {
    cairo_scale(cairo_, kScale, kScale);
    cairo_set_line_join(cairo_, CAIRO_LINE_JOIN_ROUND);
  }
  ~CairoCanvas() override {
    cairo_destroy(cairo_);
    cairo_surface_destroy(surface_);
  }
  CairoCanvas(const CairoCanvas&) = delete;
  CairoCanvas& operator=(const CairoCanvas&) = delete;

  void box(double x, double y, double width, double height, Colour fill) override {
    use(fill, 1);
    cairo_rectangle(cairo_, x, y, width, height);
    cairo_fill(cairo_);
  }
  void area(const Points& points, Colour fill, double opacity) override {
    use(fill, opacity);
    cairo_new_path(cairo_);
    for (const auto& [x, y] : points) cairo_line_to(cairo_, x, y);
    cairo_fill(cairo_);
  }
  void line(const Points& points, const Stroke& stroke) override {
    use(stroke.colour, stroke.opacity);
    cairo_set_line_width(cairo_, stroke.width);
    cairo_set_dash(cairo_, stroke.dashes.data(), static_cast<int>(stroke.dashes.size()), stroke.dash_offset);
    cairo_new_path(cairo_);
    for (const auto& [x, y] : points) cairo_line_to(cairo_, x, y);
    cairo_stroke(cairo_);
  }
  void dot(double x, double y, double radius, Colour fill, Marker marker) override {
    cairo_new_path(cairo_);
    for (const auto& [px, py] : marker_corners(marker, x, y, radius)) cairo_line_to(cairo_, px, py);
    if (marker == Marker::circle) cairo_arc(cairo_, x, y, radius, 0, 2 * std::numbers::pi);
    cairo_close_path(cairo_);
    use(fill, 1);
    cairo_fill_preserve(cairo_);
    use({255, 255, 255}, 1);
    cairo_set_line_width(cairo_, 1);
    cairo_set_dash(cairo_, nullptr, 0, 0);
    cairo_stroke(cairo_);
  }
  void text(double x, double y, const std::string& text, const TextStyle& style) override {
    use(style.colour, 1);
    cairo_select_font_face(cairo_, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           style.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo_, style.size);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_, text.c_str(), &extents);
    const double shift = style.anchor == Anchor::start ? 0 : style.anchor == Anchor::middle ? 0.5 : 1;
    cairo_save(cairo_);
    cairo_translate(cairo_, x, y);
    if (style.upwards) cairo_rotate(cairo_, -std::numbers::pi / 2);
    cairo_move_to(cairo_, -shift * extents.x_advance, 0);
    cairo_show_text(cairo_, text.c_str());
    cairo_restore(cairo_);
  }
  void clip(double x, double y, double width, double height) override {
    cairo_rectangle(cairo_, x, y, width, height);
    cairo_clip(cairo_);
  }
  void unclip() override { cairo_reset_clip(cairo_); }

  void write(const std::string& path) const {
    NewFile file(path);
    const auto append = [](void* to, const unsigned char* bytes, unsigned count) {
      try {
        static_cast<NewFile*>(to)->write(bytes, count);
        return CAIRO_STATUS_SUCCESS;
      } catch (const Error&) {  // exceptions must not propagate through C code
        return CAIRO_STATUS_WRITE_ERROR;
      }
    };
    const cairo_status_t status = cairo_surface_write_to_png_stream(surface_, append, &file);
    LAMINA_CHECK(status == CAIRO_STATUS_SUCCESS, path, ": cannot be written: ", cairo_status_to_string(status));
    file.publish();
  }

 private:
  void use(Colour colour, double opacity) {
    cairo_set_source_rgba(cairo_, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0, opacity);
  }

  cairo_surface_t* surface_;
  cairo_t* cairo_;
};

}  // namespace

void write_png(const std::string& path, int width, int height, const std::function<void(Canvas&)>& draw) {
  CairoCanvas canvas(width, height);
  draw(canvas);
  canvas.write(path);
}

#else

void write_png(const std::string& path, int, int, const std::function<void(Canvas&)>&) {
  throw Error(str(path,
                  ": this program was built without cairo, which draws PNG files; name an .svg file instead, or "
                  "install Debian's libcairo2-dev and build again"));
}

#endif

}  // namespace lamina::plot
