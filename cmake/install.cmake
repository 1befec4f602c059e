# Tally::tally is the whole library. cmake --install DIR brings the program, the libraries, the headers and
# TallyConfig.cmake, so that an outside project needs find_package(Tally) only (examples/hello).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(tally INTERFACE)
target_link_libraries(tally INTERFACE tally_train)
target_compile_features(tally INTERFACE cxx_std_20)
add_library(Tally::tally ALIAS tally)

set(libraries tally)
foreach(layer ${TALLY_LAYERS})
  list(APPEND libraries tally_${layer})
endforeach()
install(TARGETS ${libraries} EXPORT TallyTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tally_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tally DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT TallyTargets NAMESPACE Tally:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tally)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/TallyConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tally)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TallyConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TallyConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tally)
