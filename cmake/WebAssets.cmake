# What HTML pages carry, built into the rooms that write them: the style and scripts of the reports of src/lab and the chat
# page of src/serve. If npm is there, their scripts are bundled with npm packages. Without it reports show their charts as
# pictures, and the server's page is a plain form.
option(LAMINA_CHARTS "Bundle the npm packages of reports and of the server's page" ON)
find_program(LAMINA_NODE node)
find_program(LAMINA_NPM npm)
set(npm "")
if(LAMINA_SANITIZE)  # the browser's tests are the release build's
elseif(LAMINA_CHARTS AND LAMINA_NODE AND LAMINA_NPM)
  set(npm ${LAMINA_NPM})
elseif(LAMINA_CHARTS)
  message(STATUS "node or npm not found: charts of reports are pictures, the server's page is plain (Debian: npm)")
endif()

# web_assets(ROOM HEADER STRUCT FUNCTION FOLDER folder PLAIN files… SOURCES files and folders… BUNDLES files… WITHOUT text):
# embeds the plain files of a folder as they are, and what `npm run build` makes of its sources.
function(web_assets room header struct function)
  cmake_parse_arguments(PARSE_ARGV 4 web "" "FOLDER;WITHOUT" "PLAIN;SOURCES;BUNDLES")
  set(folder ${PROJECT_SOURCE_DIR}/${web_FOLDER})
  set(work ${CMAKE_CURRENT_BINARY_DIR}/${web_FOLDER})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}_data.cpp)
  set(inputs "")
  foreach(one IN LISTS web_PLAIN web_SOURCES)
    if(IS_DIRECTORY ${folder}/${one})
      file(GLOB files CONFIGURE_DEPENDS ${folder}/${one}/*.js ${folder}/${one}/*.jsx ${folder}/${one}/*.css)
      list(APPEND inputs ${files})
    else()
      list(APPEND inputs ${folder}/${one})
    endif()
  endforeach()
  list(JOIN web_PLAIN "," plain)
  list(JOIN web_SOURCES "," sources)
  list(JOIN web_BUNDLES "," bundles)
  add_custom_command(OUTPUT ${output}
    DEPENDS ${inputs} ${folder}/package.json ${folder}/package-lock.json ${folder}/.npmrc
      ${PROJECT_SOURCE_DIR}/cmake/BundleWeb.cmake ${PROJECT_SOURCE_DIR}/cmake/EmbedPresets.cmake
    COMMAND ${CMAKE_COMMAND} -DWEB=${folder} -DWORK=${work} -DNPM=${npm} -DPLAIN=${plain} -DSOURCES=${sources}
      -DBUNDLES=${bundles} "-DWITHOUT=${web_WITHOUT}" -P ${PROJECT_SOURCE_DIR}/cmake/BundleWeb.cmake
    COMMAND ${CMAKE_COMMAND} -DINPUT_DIR=${work}/assets -DOUTPUT=${output} -DROOM=${room} -DHEADER=${header}
      -DSTRUCT=${struct} -DFUNCTION=${function} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPresets.cmake
    COMMENT "Assets of ${web_FOLDER}" VERBATIM)
  target_sources(lamina_${room} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
web_assets(lab report/assets.h ReportAsset report_assets FOLDER web PLAIN report.css page.js save.js SOURCES charts.js charts
  BUNDLES charts.js WITHOUT "charts of reports will be pictures")
web_assets(serve page/page.h PageAsset page_assets FOLDER web/chat PLAIN plain.css plain.js
  SOURCES main.jsx lib views style BUNDLES chat.js chat.css WITHOUT "the page of lamina serve will be a plain form")
