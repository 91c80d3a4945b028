# Each fuzz/NAME_fuzz.c is one target. Built by clang with PERCH_FUZZ it is a fuzzer; otherwise
# it is a ctest that replays fuzz/corpus/NAME/.
add_custom_target(fuzzers)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*_fuzz.c)
foreach(source ${fuzz_sources})
	get_filename_component(target ${source} NAME_WE)
	string(REGEX REPLACE "_fuzz$" "" name ${target})
	add_executable(${target} ${source})
	target_link_libraries(${target} PRIVATE perch_relay perch_agent perch_observer)
	set_target_properties(${target} PROPERTIES
		OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
	add_dependencies(fuzzers ${target})
	if(PERCH_FUZZ)
		target_link_options(${target} PRIVATE -fsanitize=fuzzer)
	else()
		target_sources(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/replay.c)
		add_test(NAME fuzz/${name}
			COMMAND ${target} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
		set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT 120)
	endif()
endforeach()
