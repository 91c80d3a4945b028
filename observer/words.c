#include "observer/words.h"

#include <stdint.h>

/* One word for each value of a byte. */
static const char *const words[256] = {
	"acorn",   "amber",    "anchor",  "apple",   "apron",    "arrow",    "aspen",
	"attic",   "autumn",   "badge",   "bamboo",  "banjo",    "barley",   "basil",
	"basket",  "beacon",   "beaver",  "bell",    "berry",    "birch",    "biscuit",
	"bison",   "blanket",  "blossom", "bottle",  "boulder",  "bramble",  "brass",
	"bread",   "breeze",   "brick",   "bridge",  "bronze",   "brook",    "bucket",
	"butter",  "button",   "cabin",   "cactus",  "camel",    "candle",   "canoe",
	"canyon",  "carpet",   "carrot",  "castle",  "cedar",    "cellar",   "chalk",
	"chapel",  "cherry",   "chimney", "cinder",  "circle",   "citrus",   "clay",
	"cliff",   "clover",   "cobalt",  "cocoa",   "comet",    "compass",  "copper",
	"coral",   "corner",   "cotton",  "cradle",  "crane",    "crater",   "cricket",
	"crimson", "crown",    "crystal", "cypress", "daisy",    "dawn",     "delta",
	"desert",  "diamond",  "dolphin", "donkey",  "dragon",   "drum",     "eagle",
	"ebony",   "echo",     "elbow",   "elm",     "ember",    "engine",   "falcon",
	"feather", "fennel",   "fern",    "ferry",   "fiddle",   "field",    "finch",
	"flint",   "flute",    "forest",  "fossil",  "fountain", "fox",      "frost",
	"garden",  "garlic",   "garnet",  "gate",    "ginger",   "glacier",  "glove",
	"gold",    "goose",    "granite", "grape",   "gravel",   "grove",    "guitar",
	"hammer",  "harbor",   "harvest", "hawk",    "hazel",    "heron",    "hickory",
	"hill",    "honey",    "hornet",  "house",   "indigo",   "iris",     "iron",
	"island",  "ivory",    "ivy",     "jade",    "jasmine",  "jelly",    "juniper",
	"kayak",   "kettle",   "kite",    "ladder",  "lagoon",   "lantern",  "larch",
	"lark",    "lavender", "leaf",    "lemon",   "lichen",   "lilac",    "lily",
	"linen",   "lion",     "lizard",  "lobster", "lotus",    "lumber",   "magnet",
	"maple",   "marble",   "market",  "marsh",   "meadow",   "melon",    "mesa",
	"mint",    "mirror",   "moon",    "moss",    "mountain", "mulberry", "music",
	"mustard", "nectar",   "needle",  "nest",    "nickel",   "nutmeg",   "oak",
	"oasis",   "oat",      "ocean",   "olive",   "onyx",     "opal",     "orange",
	"orchard", "orchid",   "otter",   "owl",     "oyster",   "paddle",   "palm",
	"panda",   "paper",    "parrot",  "pearl",   "pebble",   "pepper",   "pine",
	"planet",  "plaza",    "plum",    "pond",    "poplar",   "poppy",    "prairie",
	"pumpkin", "quail",    "quartz",  "quill",   "rabbit",   "raven",    "reed",
	"ribbon",  "river",    "robin",   "rocket",  "rose",     "ruby",     "saddle",
	"saffron", "sage",     "salmon",  "sand",    "sapphire", "satin",    "shadow",
	"shell",   "silver",   "sketch",  "slate",   "smoke",    "spark",    "sparrow",
	"spruce",  "squirrel", "stone",   "sugar",   "summit",   "swan",     "bagel",
	"bonfire", "cashew",   "cello",   "dune",    "fjord",    "gecko",    "hamlet",
	"igloo",   "jigsaw",   "koala",   "tulip",
};

void words_write(const uint8_t *key, struct buf *out)
{
	for (int i = 0; i < WORDS_COUNT; i++)
		(void)buf_printf(out, "%s%s", i ? " " : "", words[key[i]]);
}
