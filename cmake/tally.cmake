# tally_layer(name SOURCES ... DEPS layer... LIBRARIES target... TESTS ... LONG_TESTS ...)
# One static library tally_<name>, one test program tally_<name>_tests (ctest label cpu_fast) and, for tests over ten
# seconds, tally_<name>_long_tests (label cpu_long). ctest -L takes a pattern, so -L cpu, -L fast and -LE long work;
# gtest_discover_tests cannot pass a list of labels.
function(tally_layer name)
  cmake_parse_arguments(L "" "" "SOURCES;DEPS;LIBRARIES;TESTS;LONG_TESTS" ${ARGN})
  add_library(tally_${name} STATIC ${L_SOURCES})
  target_include_directories(tally_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  list(TRANSFORM L_DEPS PREPEND tally_)
  target_link_libraries(tally_${name} PUBLIC ${L_DEPS} ${TALLY_FMT} Threads::Threads ${L_LIBRARIES})
  if(TALLY_TESTS)
    tally_tests(tally_${name}_tests fast LIBRARIES tally_${name} SOURCES ${L_TESTS})
    tally_tests(tally_${name}_long_tests long LIBRARIES tally_${name} SOURCES ${L_LONG_TESTS})
  endif()
endfunction()

# tally_tests(program label SOURCES ... LIBRARIES ...): a GoogleTest program, each TEST a ctest entry.
function(tally_tests program label)
  cmake_parse_arguments(T "" "" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT T_SOURCES)
    return()
  endif()
  add_executable(${program} ${T_SOURCES})
  target_link_libraries(${program} PRIVATE ${T_LIBRARIES} tally_test_support)
  target_precompile_headers(${program} REUSE_FROM tally_test_support)
  gtest_discover_tests(${program} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "cpu_${label}" TIMEOUT 900 ENVIRONMENT "TALLY_SHARED=${PROJECT_SOURCE_DIR}/../shared")
endfunction()

# The precompiled <gtest/gtest.h> and the helpers of tests/support.
function(tally_test_support)
  include(GoogleTest)
  add_library(tally_test_support STATIC tests/support/support.cpp)
  target_include_directories(tally_test_support PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(tally_test_support PUBLIC tally_base GTest::gtest GTest::gtest_main)
  target_precompile_headers(tally_test_support PRIVATE <gtest/gtest.h>)
endfunction()
