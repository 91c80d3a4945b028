# The page: bundled from observer/web/ by esbuild and embedded into perch_observer as the table
# of observer/http/page.h. A machine without Node and npm still builds and tests everything else:
# there the page says how to get it.

set(web ${CMAKE_SOURCE_DIR}/observer/web)
find_program(PERCH_NODE NAMES node nodejs)
# Configure again when the packages come or go.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${web}/package.json)
file(GLOB page_tool CONFIGURE_DEPENDS ${web}/node_modules/.bin/esbuild)

if(PERCH_NODE AND page_tool)
	file(GLOB page_sources CONFIGURE_DEPENDS
		${web}/src/*.ts ${web}/src/*.tsx ${web}/*.css ${web}/*.html ${web}/*.svg ${web}/build.mjs)
	add_custom_command(
		OUTPUT ${CMAKE_BINARY_DIR}/page/page.c
		COMMAND ${PERCH_NODE} ${web}/build.mjs ${CMAKE_BINARY_DIR}/page/files ${CMAKE_BINARY_DIR}/page/page.c
		DEPENDS ${page_sources} ${web}/package-lock.json
		COMMENT "Bundling the page"
		VERBATIM)
else()
	message(STATUS "observer/web has no npm packages here: the page is left out (./dev build gets them)")
	file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/page/page.c CONTENT [=[
#include "observer/http/page.h"

static const unsigned char text[] =
	"<!doctype html><html lang=\"en\"><title>perch</title><p>The page was not built: run ./dev build";

const struct page_asset page_assets[] = {
	{"/", "text/html; charset=utf-8", text, sizeof(text) - 1, NULL, 0},
};
const size_t page_asset_count = 1;
const struct page_asset page_replay[2] = {
	{"", "", text, sizeof(text) - 1, NULL, 0},
	{"", "", text, 0, NULL, 0},
};
]=] @ONLY)
endif()
target_sources(perch_observer PRIVATE ${CMAKE_BINARY_DIR}/page/page.c)
