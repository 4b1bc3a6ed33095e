#include <string>
#include <string_view>

#include "lamina/text/grammar/json_schema.h"

namespace lamina::text::grammar {
namespace {

// RFC 3339. February has 29 days only in leap years.
#define LAMINA_LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define LAMINA_DATE                                                                                     \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|" \
  "02-(?:0[1-9]|1[0-9]|2[0-8]))|" LAMINA_LEAP_YEAR "-02-29)"
#define LAMINA_CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define LAMINA_TIME LAMINA_CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" LAMINA_CLOCK ")"
#define LAMINA_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define LAMINA_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LAMINA_IPV4 LAMINA_BYTE "(?:\\." LAMINA_BYTE "){3}"
#define LAMINA_H16 "[0-9A-Fa-f]{1,4}"
#define LAMINA_PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

struct NamedFormat {
  std::string_view name;
  const char* pattern;
};

constexpr NamedFormat kFormats[] = {
    {"date-time", "^" LAMINA_DATE "T" LAMINA_TIME "$"},
    {"date", "^" LAMINA_DATE "$"},
    {"time", "^" LAMINA_TIME "$"},
    {"duration",
     "^P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
     "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|"
     "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))$"},
    {"email", "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" LAMINA_LABEL
              "(?:\\." LAMINA_LABEL ")+$"},
    {"hostname", "^" LAMINA_LABEL "(?:\\." LAMINA_LABEL "){0,3}$"},
    {"ipv4", "^" LAMINA_IPV4 "$"},
    {"ipv6", "^(?:(?:" LAMINA_H16 ":){7}" LAMINA_H16 "|(?:" LAMINA_H16 ":){1,7}:|(?:" LAMINA_H16 ":){1,6}:" LAMINA_H16
             "|(?:" LAMINA_H16 ":){1,5}(?::" LAMINA_H16 "){2}|(?:" LAMINA_H16 ":){1,4}(?::" LAMINA_H16
             "){3}|(?:" LAMINA_H16 ":){1,3}(?::" LAMINA_H16 "){4}|(?:" LAMINA_H16 ":){1,2}(?::" LAMINA_H16
             "){5}|" LAMINA_H16 ":(?::" LAMINA_H16 "){6}|:(?:(?::" LAMINA_H16 "){1,7}|:))$"},
    {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(?://(?:[A-Za-z0-9._~-]+@)?" LAMINA_LABEL "(?:\\." LAMINA_LABEL
            "){0,7}(?::[0-9]{1,5})?(?:/" LAMINA_PCHAR "*)*|" LAMINA_PCHAR "+(?:/" LAMINA_PCHAR "*)*)"
            "(?:\\?(?:" LAMINA_PCHAR "|[/?])*)?(?:#(?:" LAMINA_PCHAR "|[/?])*)?$"},
    {"json-pointer", "^(?:/(?:[^~/]|~[01])*)*$"},
};

}  // namespace

const char* format_pattern(std::string_view format) {
  for (const NamedFormat& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return nullptr;
}

std::string format_names() {
  std::string names;
  for (const NamedFormat& known : kFormats) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

}  // namespace lamina::text::grammar
