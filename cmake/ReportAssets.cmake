# What the HTML reports of src/lab carry: web/report.css, web/page.js and, where npm is there, the charts of web/charts.js
# bundled with their library. Without them reports show the same charts as pictures.
option(LAMINA_CHARTS "Bundle the npm packages that draw the charts of reports" ON)
find_program(LAMINA_NODE node)
find_program(LAMINA_NPM npm)
set(npm "")
if(LAMINA_SANITIZE)  # the browser's test is the release build's
elseif(LAMINA_CHARTS AND LAMINA_NODE AND LAMINA_NPM)
  set(npm ${LAMINA_NPM})
elseif(LAMINA_CHARTS)
  message(STATUS "node or npm not found: charts of reports are pictures (Debian: npm)")
endif()

set(web ${PROJECT_SOURCE_DIR}/web)
set(output ${CMAKE_CURRENT_BINARY_DIR}/report_assets_data.cpp)
add_custom_command(OUTPUT ${output}
  DEPENDS ${web}/charts.js ${web}/page.js ${web}/report.css ${web}/package.json ${web}/package-lock.json ${web}/.npmrc
    ${PROJECT_SOURCE_DIR}/cmake/BundleCharts.cmake ${PROJECT_SOURCE_DIR}/cmake/EmbedPresets.cmake
  COMMAND ${CMAKE_COMMAND} -DWEB=${web} -DWORK=${CMAKE_CURRENT_BINARY_DIR}/web -DNPM=${npm}
    -P ${PROJECT_SOURCE_DIR}/cmake/BundleCharts.cmake
  COMMAND ${CMAKE_COMMAND} -DINPUT_DIR=${CMAKE_CURRENT_BINARY_DIR}/web/assets -DOUTPUT=${output} -DROOM=lab
    -DHEADER=report/assets.h -DSTRUCT=ReportAsset -DFUNCTION=report_assets
    -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPresets.cmake
  COMMENT "Assets of reports" VERBATIM)
target_sources(lamina_lab PRIVATE ${output})
