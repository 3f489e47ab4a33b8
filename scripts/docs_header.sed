# SPDX-License-Identifier: Apache-2.0
# Plain comments of headers as Doxygen's: scripts/docs.sh
/^#/b
/^ *\/\//{
  s/[\\<@]/\\&/g
  s#^( *)//( |$)#\1///\2#
  b
}
s#^([^"]*[;,{}] +)// #\1///< #
:next
s#(///< .*[^\\])\\([^\\])#\1\\\\\2#
t next
