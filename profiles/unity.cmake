# PERCH_UNITY_GROUPS: the libraries' sources are compiled in so many groups, each one translation
# unit. Statics are named for their file, not for their folder, so two files that both have an
# on_timer() must not meet: each goes to the smallest group that has none of its names. It stays
# alone if there is none, or if one of its names is another file's or a header's to give away.

# What the file declares at file scope: functions, variables, macros, types, constants of enums.
# @shared: its functions that are not static.
function(perch_names source out shared)
	set(names)
	set(functions)
	file(READ ${source} text)
	string(REGEX REPLACE "[][;\\]" "~" text "${text}") # what means something in a list
	string(REGEX MATCHALL "\n([a-z]|#define|\t[A-Z])[^\n]*" lines "${text}")
	foreach(line IN LISTS lines)
		foreach(form
				"^\nstatic [^(=]*[ *]([A-Za-z0-9_]+)([(~]| =|$)"
				"^\n#define ([A-Za-z0-9_]+)"
				"^\n[a-z]+ ([A-Za-z0-9_]+) {"
				"^\n\t([A-Z][A-Z0-9_]+)( =[^,]*)?,")
			if(line MATCHES "${form}")
				list(APPEND names ${CMAKE_MATCH_1})
			endif()
		endforeach()
		if(NOT line MATCHES "^\nstatic" AND line MATCHES "^\n[a-z][a-z0-9_ ]*[ *]([a-z0-9_]+)[(]")
			list(APPEND functions ${CMAKE_MATCH_1})
		endif()
	endforeach()
	set(${out} "${names}" PARENT_SCOPE)
	set(${shared} "${functions}" PARENT_SCOPE)
endfunction()

# Whether the two lists have something in common.
function(perch_meet left right out)
	set(${out} FALSE PARENT_SCOPE)
	foreach(name IN LISTS ${left})
		if(name IN_LIST ${right})
			set(${out} TRUE PARENT_SCOPE)
			return()
		endif()
	endforeach()
endfunction()

# Distributes a library's sources to @groups groups.
function(perch_unity library groups)
	get_target_property(sources ${library} SOURCES)
	list(FILTER sources EXCLUDE REGEX "^${CMAKE_BINARY_DIR}/") # made by the build: alone
	math(EXPR last "${groups} - 1")
	foreach(group RANGE ${last})
		set(bytes_${group} 0)
		set(names_${group})
	endforeach()
	set(shared)
	string(REPLACE perch_ "" folder ${library})
	file(GLOB_RECURSE headers ${CMAKE_SOURCE_DIR}/${folder}/*.h)
	foreach(header IN LISTS headers)
		perch_names(${header} given functions)
		list(APPEND shared ${given})
	endforeach()
	foreach(source IN LISTS sources)
		perch_names(${source} names_of_${source} functions)
		list(APPEND shared ${functions})
	endforeach()
	foreach(source IN LISTS sources)
		set(names ${names_of_${source}})
		perch_meet(names shared alone)
		set(best)
		foreach(group RANGE ${last})
			perch_meet(names names_${group} clash)
			if(NOT alone AND NOT clash
					AND ("${best}" STREQUAL "" OR bytes_${group} LESS bytes_${best}))
				set(best ${group})
			endif()
		endforeach()
		if(NOT "${best}" STREQUAL "")
			list(APPEND names_${best} ${names})
			file(SIZE ${source} bytes)
			math(EXPR bytes_${best} "${bytes_${best}} + ${bytes}")
			set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${best})
		endif()
	endforeach()
	set_target_properties(${library} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# A parameter may be called like another file's static.
target_compile_options(perch_flags INTERFACE -Wno-shadow)
set(libraries perch_wire perch_relay perch_agent perch_observer)
set(total 0)
foreach(library ${libraries})
	get_target_property(sources ${library} SOURCES)
	list(LENGTH sources count_${library})
	math(EXPR total "${total} + ${count_${library}}")
endforeach()
foreach(library ${libraries})
	math(EXPR groups "(${PERCH_UNITY_GROUPS} * ${count_${library}} + ${total} / 2) / ${total}")
	if(groups LESS 1)
		set(groups 1)
	endif()
	perch_unity(${library} ${groups})
endforeach()
