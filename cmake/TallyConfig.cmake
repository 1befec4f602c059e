# find_package(Tally): the target Tally::tally.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(PkgConfig)
pkg_check_modules(XXHASH REQUIRED QUIET IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED QUIET IMPORTED_TARGET libpcre2-8)
include(${CMAKE_CURRENT_LIST_DIR}/TallyTargets.cmake)
